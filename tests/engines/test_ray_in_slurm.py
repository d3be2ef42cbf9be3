"""`ciranda.ray` on a Ray that srun has started on the nodes of an allocation, as its guides do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from drivers import RANKS

RAY = str(Path(sys.executable).with_name("ray"))
NAMES = ("node0", "node1", "node2")

# One step has the head, another, of two tasks, all other nodes: Ray has their variables, of which ranks get none.
SCRIPT = """#!/bin/sh
srun --overlap -N1 -n1 -w node0 "$RAY" start --head --port=6379 --node-ip-address=10.91.0.11 --include-dashboard=false \
  $OPTIONS &
srun --overlap -N2 -n2 -w node1,node2 sh -c \\
  '"$RAY" start --address=10.91.0.11:6379 --node-ip-address=$(hostname -I | cut -d " " -f 1) $OPTIONS' &
"$PY" "$DRIVER" > "$OUT" 2> "$OUT.err"
"""

DRIVER = (
    """
import os, socket, sys, time
import numpy, ray, ciranda, ciranda.ray
from pathlib import Path
"""
    + RANKS
    + """
deadline = time.monotonic() + 300
while True:
    try:
        ray.init(address="10.91.0.11:6379", log_to_driver=False)
        break
    except (ConnectionError, RuntimeError):
        assert time.monotonic() < deadline
        time.sleep(1)
while len([node for node in ray.nodes() if node["Alive"]]) < 3:
    assert time.monotonic() < deadline
    time.sleep(0.1)

def with_tasks():
    return (*numbers(), os.environ.get("SLURM_STEP_NUM_TASKS"))

for each in ciranda.ray.run(with_tasks, np=3, placement="STRICT_SPREAD"):
    print(*each)
"""
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm_cluster.Cluster]:
    """Each node has folders of its own for Ray's sockets and logs."""
    if (why := slurm_cluster.why_not()) is not None:
        pytest.skip(f"NOT TESTED, Ray within Slurm: {why}")
    os.makedirs("/tmp/ray", exist_ok=True)
    with slurm_cluster.cluster(len(NAMES)) as made:
        for host in made.hosts.hosts:
            subprocess.run([*host.enter, "mount", "-t", "tmpfs", "tmpfs", "/tmp/ray"], check=True)
        yield made


def test_ranks_of_ray_are_no_tasks_of_the_steps_that_have_started_it(
    cluster: slurm_cluster.Cluster, tmp_path: Path
) -> None:
    script, driver, out = (tmp_path / name for name in ("job.sh", "driver.py", "out"))
    script.write_text(SCRIPT)
    driver.write_text(DRIVER)
    env = {
        "RAY": RAY,
        "PY": sys.executable,
        "DRIVER": str(driver),
        "OUT": str(out),
        "OPTIONS": "--num-cpus=1 --object-store-memory=80000000 --block",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_health_check_period_ms": "60000",
    }
    options = ["--wait", "-N3", "-n3", "--ntasks-per-node=1", f"--output={tmp_path}/log"]
    code, _, err = cluster.run("sbatch", *options, str(script), seconds=600, **env)
    said = "\n".join(path.read_text() for path in (out, Path(f"{out}.err"), tmp_path / "log") if path.exists())
    assert code == 0, err + said
    lines = [line.split() for line in out.read_text().splitlines()]
    assert sorted(line[0] for line in lines) == sorted(NAMES), said
    assert [" ".join(line[1:-1]) for line in lines] == [f"{rank} 0 1 {rank} 3 3.0" for rank in range(3)]
    assert [line[-1] for line in lines] == ["None"] * 3
