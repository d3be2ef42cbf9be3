"""A rank that ends with 0 before an init() of the others: they do not wait for it, if they wait at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import netns
import pytest
from launch_support import GUARD_SECONDS

pytestmark = pytest.mark.multiprocess

HELPERS = """
import os, sys, time
RANK = int(os.environ["CIRANDA_RANK"])

def wait_until(holds):
    while not holds():
        time.sleep(0.005)

def has_gone(path):
    try:
        os.kill(int(open(path).read()), 0)
    except (ProcessLookupError, FileNotFoundError, ValueError) as error:
        return isinstance(error, ProcessLookupError)

def n_at_the_store():
    ports = {int(each.rpartition(":")[2]) for each in os.environ["CIRANDA_STORE"].split(",")}
    lines = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
    return sum(line[3] == "01" and int(line[2].rpartition(":")[2], 16) in ports for line in lines)
"""
JOIN = "import ciranda\nciranda.init()\nciranda.barrier()\nciranda.shutdown()\n"
WAITED_FOR = "if RANK == 1:\n    wait_until(lambda: n_at_the_store() == 2)\n    sys.exit(0)\n"
GONE_BEFORE = (
    "pid = sys.argv[1] + '/pid'\n"
    "if RANK == 1:\n    print(os.getpid(), file=open(pid, 'w'))\n    sys.exit(0)\n"
    "wait_until(lambda: has_gone(pid))\n"
)


def run(arguments: Sequence[str], through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """`ciranda run`, whose ranks wait for each other for minutes."""
    command = [*through, sys.executable, "-m", "ciranda.launch.cli", "run", "--start-timeout", "300", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", HELPERS + code, *map(str, arguments)]


def check_that_it_is_said(done: subprocess.CompletedProcess[str], host: str) -> None:
    assert done.returncode == 1, done.stderr
    assert f"rank 1 does not come: its process on {host} has ended with exit status 0:" in done.stderr
    assert "all ranks must call init() equally often" in done.stderr


@pytest.mark.parametrize("leave", [WAITED_FOR, GONE_BEFORE], ids=["waited for", "gone before"])
def test_who_waits_for_a_rank_that_has_ended_is_told(leave: str, tmp_path: Path) -> None:
    check_that_it_is_said(run(["-np", "3", *python(leave + JOIN, tmp_path)]), "localhost")


def test_a_rank_that_ends_between_two_worlds(tmp_path: Path) -> None:
    leave = "ciranda.shutdown()\n" + GONE_BEFORE
    check_that_it_is_said(
        run(["-np", "3", *python("import ciranda\nciranda.init()\n" + leave + JOIN, tmp_path)]), "localhost"
    )


@pytest.mark.netns
@pytest.mark.ssh
def test_a_rank_that_has_ended_on_another_host(hosts: netns.Hosts) -> None:
    leave = "if RANK == 1:\n    sys.exit(0)\n"
    arguments = ["-F", str(hosts.ssh_config), "-H", "hostA,hostB", *python(leave + JOIN)]
    check_that_it_is_said(run(arguments, hosts[0].enter), "hostB")


def test_a_job_of_ranks_that_do_not_wait_for_each_other_ends_well(tmp_path: Path) -> None:
    alone = (
        "for name in [name for name in os.environ if name.startswith(('CIRANDA_', 'HOROVOD_'))]:\n"
        "    del os.environ[name]\n"
        "os.environ['CIRANDA_ENGINE'] = 'none'\n"
    )
    done = run(["-np", "3", *python(GONE_BEFORE + alone + JOIN, tmp_path)])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rank_that_leaves_its_work_to_a_process_behind_it_is_waited_for(tmp_path: Path) -> None:
    join = "if RANK == 1:\n    wait_until(lambda: has_gone(sys.argv[1] + '/shell'))\n" + JOIN
    script = '[ "$CIRANDA_RANK" = 1 ] || exec "$@"\necho $$ > "$0/shell"\n"$@" &\n'
    done = run(["-np", "2", "sh", "-c", script, str(tmp_path), *python(join, tmp_path)])
    assert (done.returncode, done.stderr) == (0, "")
