"""`ciranda.spark.run` on a master of Spark with workers on two other hosts, which are network namespaces."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import netns
import psutil
import pyspark
import pytest
from drivers import RANKS, end, strangers_do_no_harm, wait_until

PORT = "7077"
HOME = Path(pyspark.__file__).parent
DRIVER = (
    """
import os, socket, sys
from pathlib import Path
import cloudpickle, numpy
from pyspark.sql import SparkSession
import ciranda
from ciranda.launch import LaunchError
from ciranda.spark import run

"""
    + RANKS
    + """
master, own = sys.argv[1:3]
options = {"spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.ui.showConsoleProgress": "false",
           "spark.driver.host": own, "spark.driver.bindAddress": own, "spark.network.timeout": "300s",
           "spark.executor.heartbeatInterval": "100s"}
context = SparkSession.builder.master(master).config(map=options).getOrCreate().sparkContext
"""
)


@pytest.fixture(scope="module")
def cluster(hosts: netns.Hosts, tmp_path_factory: pytest.TempPathFactory) -> netns.Hosts:
    """Two cores on each of two hosts, beside the first, which has the master."""
    folder = tmp_path_factory.mktemp("spark")
    master = ["master.Master", "--host", hosts[0].address, "--port", PORT, "--webui-port", "0"]
    commands = [master]
    for host in hosts.hosts[1:]:
        options = ["--host", host.address, "--cores", "2", "--memory", "1g", "--webui-port", "0", "--work-dir"]
        commands.append(["worker.Worker", *options, f"{folder}/{host.name}", f"spark://{hosts[0].address}:{PORT}"])
    for host, (what, *more) in zip(hosts.hosts, commands, strict=True):
        env = {**os.environ, "SPARK_LOCAL_IP": host.address, "SPARK_HOME": str(HOME)}
        command = [*host.enter, str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *more]
        log = folder / f"{host.name}.log"
        with open(log, "wb") as out:
            subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        said = "I have been elected leader" if host is hosts[0] else "Successfully registered with master"
        wait_until(lambda log=log, said=said: said in log.read_text(), f"{what} on {host.name}: {log}")
    return hosts  # with which all of it ends


def start(
    cluster: netns.Hosts, code: str, *arguments: str, executors: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """`executors`: variables of theirs."""
    own = cluster[0].address
    options = [
        word for name, value in (executors or {}).items() for word in ("--conf", f"spark.executorEnv.{name}={value}")
    ]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": own}
    env["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
    command = [*cluster[0].enter, sys.executable, "-c", DRIVER + code, f"spark://{own}:{PORT}", own, *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ranks_of_two_hosts_meet(cluster: netns.Hosts) -> None:
    exit_code, out, err = end(start(cluster, "for each in run(numbers, np=4): print(*each)"))
    assert exit_code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert sorted(line[0] for line in lines) == ["host1", "host1", "host2", "host2"]
    assert [" ".join(line[1:]) for line in lines] == [f"{rank} {rank % 2} 2 {rank // 2} 2 4.0" for rank in range(4)]


def test_strangers_get_in_nowhere_and_the_job_goes_on(cluster: netns.Hosts, tmp_path: Path) -> None:
    code = "run(work, (sys.argv[3],), np=4)"
    strangers_do_no_harm(cluster, tmp_path, 4, lambda: start(cluster, code, str(tmp_path)))


OTHER_VERSION = """
import os
if os.uname().nodename == "host2":
    from ciranda.launch import protocol
    protocol.VERSION += 1
"""


def test_an_executor_with_another_version_is_refused_by_name(cluster: netns.Hosts, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION)
    code = """
try:
    run(numbers, np=4)
except LaunchError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    exit_code, out, err = end(start(cluster, code, executors={"PYTHONPATH": path}))
    assert exit_code == 0, err
    # Which of the two has the launcher is Spark's choice.
    assert re.search(
        r"host[12]/task-\d+: its ciranda speaks version \d+ of the protocol, this one \d+: install", out
    ), out


def test_a_host_that_loses_power_ends_the_ranks_of_all(cluster: netns.Hosts, tmp_path: Path) -> None:
    """Long before Spark takes the executor for lost."""
    code = """
try:
    run(work, (sys.argv[3],), np=4, env={"CIRANDA_LINK_TIMEOUT": "1"})
except LaunchError as error:
    print(error)
"""
    process = start(cluster, code, str(tmp_path))
    wait_until(lambda: len([each for each in tmp_path.iterdir() if each.read_text()]) == 4, "the start", 600)
    ranks = [each.read_text().split() for each in tmp_path.iterdir()]
    with cluster.cut(2):
        wait_until(
            lambda: not any(psutil.pid_exists(int(pid)) for host, pid in ranks if host == "host1"), "a rank is left"
        )
        exit_code, out, err = end(process)
    assert exit_code == 0, err
    assert "host2" in out, out
