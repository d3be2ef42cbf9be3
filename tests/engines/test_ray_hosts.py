"""`ciranda.ray` on a cluster of Ray of three hosts, which are network namespaces: a driver on the first of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import netns
import psutil
import pytest
from drivers import RANKS, end, strangers_do_no_harm, wait_until

PORT = "6379"
NO_TOKEN = {"RAY_AUTH_MODE": "disabled"}  # of a head alone, if one is left in the home folder by another cluster
RAY = str(Path(sys.executable).with_name("ray"))
DRIVER = (
    """
import os, socket, sys, time
import numpy, ray, ciranda, ciranda.ray
from pathlib import Path

"""
    + RANKS
    + """
ray.init(address="auto", log_to_driver=False)
"""
)


@pytest.fixture(scope="module")
def cluster(hosts: netns.Hosts) -> netns.Hosts:
    """Two CPUs on each host. Each has folders of its own for Ray's sockets and logs."""
    env = {**os.environ, **NO_TOKEN, "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "60000"}
    os.makedirs("/tmp/ray", exist_ok=True)
    for index, host in enumerate(hosts.hosts):
        subprocess.run([*host.enter, "mount", "-t", "tmpfs", "tmpfs", "/tmp/ray"], check=True)
        where = (
            ["--head", f"--port={PORT}", "--include-dashboard=false"]
            if index == 0
            else [f"--address={hosts[0].address}:{PORT}"]
        )
        command = [
            RAY,
            "start",
            *where,
            f"--node-ip-address={host.address}",
            "--num-cpus=2",
            "--object-store-memory=80000000",
        ]
        done = subprocess.run(
            [*host.enter, *command], env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return hosts  # with which all of it ends


def start(cluster: netns.Hosts, code: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    command = [*cluster[0].enter, sys.executable, "-c", DRIVER + code, *arguments]
    return subprocess.Popen(
        command, env={**os.environ, **NO_TOKEN, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_ranks_of_three_hosts_meet(cluster: netns.Hosts) -> None:
    code = """
while len(ray.nodes()) < 3: time.sleep(0.1)
for each in ciranda.ray.run(numbers, np=6): print(*each)
for each in ciranda.ray.run(numbers, np=3, placement="STRICT_SPREAD"): print(*each)
"""
    exit_code, out, err = end(start(cluster, code))
    assert exit_code == 0, err
    lines = [line.split() for line in out.splitlines()]
    packed, spread = lines[:6], lines[6:]
    assert sorted({line[0] for line in packed}) == sorted({line[0] for line in spread}) == ["host0", "host1", "host2"]
    numbers = [f"{rank} {rank % 2} 2 {rank // 2} 3 6.0" for rank in range(6)]
    assert [" ".join(line[1:]) for line in packed] == numbers
    assert [" ".join(line[1:]) for line in spread] == [f"{rank} 0 1 {rank} 3 3.0" for rank in range(3)]


def test_the_secret_is_in_nothing_that_ray_shows(cluster: netns.Hosts) -> None:
    """Of actors, placement groups, tasks and nodes, in the tables that its state API reads."""
    code = """
import ray._private.state as state
def secret():
    return Path(os.environ["CIRANDA_SECRET_FILE"]).read_text()
with ciranda.ray.Executor(np=3, placement="STRICT_SPREAD") as executor:
    (text, *_) = executor.run(secret)
    tables = [ray.nodes(), state.actors(), state.state.placement_group_table(), state.jobs(), state.state.job_table()]
    shown = repr(tables) + repr(state.timeline())
    assert "Rank" in shown and len(text) == 64
    assert text not in shown
logs = [path for path in Path("/tmp/ray").rglob("*") if path.is_file()]
assert logs and not [path for path in logs if text.encode() in path.read_bytes()]
print("well")
"""
    exit_code, out, err = end(start(cluster, code))
    assert (exit_code, out) == (0, "well\n"), err


def test_strangers_get_in_nowhere_and_the_job_goes_on(cluster: netns.Hosts, tmp_path: Path) -> None:
    code = 'ciranda.ray.run(work, (sys.argv[1],), np=3, placement="STRICT_SPREAD")'
    strangers_do_no_harm(cluster, tmp_path, 3, lambda: start(cluster, code, str(tmp_path)))


def test_a_driver_with_another_version_is_refused_by_name(cluster: netns.Hosts) -> None:
    code = """
ciranda._core.__version__ = "0.0.1"
try:
    ciranda.ray.run(numbers, np=3, placement="STRICT_SPREAD")
except ciranda.launch.LaunchError as error:
    print(error)
"""
    exit_code, out, err = end(start(cluster, code))
    assert exit_code == 0, err
    assert "not all have the same version of Ciranda: 0.0.1 on the driver; " in out, (out, err)
    assert all(f"host{index}" in out for index in range(3)), out


def test_a_host_that_loses_power_ends_the_ranks_of_all(cluster: netns.Hosts, tmp_path: Path) -> None:
    """Long before Ray takes the node for lost. The last test: the cluster is not the same again."""
    code = """
try:
    ciranda.ray.run(work, (sys.argv[1],), np=3, placement="STRICT_SPREAD", env={"CIRANDA_LINK_TIMEOUT": "1"})
except ciranda.launch.LaunchError as error:
    print(error)
"""
    process = start(cluster, code, str(tmp_path))
    wait_until(lambda: len([each for each in tmp_path.iterdir() if each.read_text()]) == 3, "the start", 600)
    ranks = dict(each.read_text().split() for each in tmp_path.iterdir())
    with cluster.cut(2):
        exit_code, out, err = end(process)
        assert exit_code == 0, err
        assert "RanksLostError" in out, out
        assert "(host host2, pid" in out, out
        left = [int(ranks[host]) for host in ("host0", "host1")]
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in left), "a rank is left")
