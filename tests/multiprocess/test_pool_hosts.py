"""`ciranda.launch.Pool` over several hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import netns
import pytest
from launch_support import GUARD_SECONDS, TAG, Running, until
from strangers import strangers

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns, pytest.mark.ssh]

# Runs on hostA, which starts one rank itself.
SEVERAL_CALLS = """
import os, socket, sys
import numpy
from ciranda.launch import LaunchError, Pool
from ciranda.launch.api import RunOptions
from ciranda.launch.ssh import SshOptions

def where():
    import ciranda
    ciranda.init()
    total = ciranda.allreduce(float(ciranda.rank()), op=ciranda.Sum, name="total")
    print("said on", socket.gethostname())
    return socket.gethostname(), ciranda.local_rank(), ciranda.cross_rank(), total, os.getpid()

def fail_on_2():
    import ciranda
    if ciranda.rank() == 2:
        raise ValueError("no such batch")
    ciranda.barrier()

with Pool(hosts="hostA:1,hostB:2", options=RunOptions(ssh=SshOptions(config_file=sys.argv[1]))) as pool:
    first = pool.run(where)
    assert [each[:4] for each in first] == [("hostA", 0, 0, 3.0), ("hostB", 0, 1, 3.0), ("hostB", 1, 0, 3.0)], first
    assert pool.run(where) == first
    large = numpy.arange(1 << 20)
    for copy in pool.run(lambda array: array + 1, (large,)):
        assert (copy == large + 1).all()
    try:
        pool.run(fail_on_2)
    except LaunchError as error:
        assert "rank 2 raised" in str(error) and "no such batch" in str(error), error
        assert error.failure.host == "hostB"
    assert [each[3] for each in pool.run(where)] == [3.0] * 3
"""

# Runs on hostA, and has its ranks on others.
WORKS = """
import sys, time
from ciranda.launch import LaunchError, Pool
from ciranda.launch.api import RunOptions
from ciranda.launch.ssh import SshOptions

def work():
    print("up", flush=True)
    time.sleep(600)

pool = Pool(np=2, hosts=sys.argv[2], options=RunOptions(ssh=SshOptions(config_file=sys.argv[1])))
try:
    pool.run(work)
except LaunchError as error:
    print(f"the call failed: {error}", flush=True)
"""


# Runs on hostA, and has a rank there and on hostB work until a file tells them.
WORKS_UNTIL_TOLD = """
import os, sys, ciranda
from ciranda.launch import Pool
from ciranda.launch.api import RunOptions
from ciranda.launch.ssh import SshOptions

def work(out):
    ciranda.init()
    open(f"{out}/up{ciranda.rank()}", "w").close()
    while not ciranda.allreduce(float(os.path.exists(f"{out}/go")), op=ciranda.Max, name="go"):
        pass
    return ciranda.rank()

with Pool(hosts="hostA:1,hostB:1", options=RunOptions(ssh=SshOptions(config_file=sys.argv[1]))) as pool:
    assert pool.run(work, (sys.argv[2],)) == [0, 1]
    assert pool.run(work, (sys.argv[2],)) == [0, 1]
"""


def start(hosts: netns.Hosts, code: str, out: Path, *names: str) -> Running:
    tag = uuid.uuid4().hex
    command = [*hosts[0].enter, sys.executable, "-c", code, str(hosts.ssh_config), *names]
    with open(out, "wb") as file:
        process = subprocess.Popen(command, env={**os.environ, TAG: tag}, stdout=file, stderr=subprocess.STDOUT)
    return Running(process, tag)  # type: ignore[arg-type]


def test_ranks_of_several_hosts_stay_between_calls(hosts: netns.Hosts, tmp_path: Path) -> None:
    running = start(hosts, SEVERAL_CALLS, tmp_path / "out")
    try:
        code = running.process.wait(GUARD_SECONDS)
        out = (tmp_path / "out").read_text(encoding="utf-8")
        assert code == 0, out
        said = [f"[{rank}]<stdout>:said on {host}" for rank, host in enumerate(("hostA", "hostB", "hostB"))]
        assert sorted(line for line in out.splitlines() if "said on" in line) == sorted(3 * said), out
        running.assert_nothing_left()
    finally:
        running.close()


def test_a_host_that_is_cut_off_closes_the_pool(hosts: netns.Hosts, tmp_path: Path) -> None:
    """Also if no rank is elsewhere: then no connection ends."""
    running = start(hosts, WORKS, tmp_path / "out", "hostC:2")
    try:
        until(lambda: (tmp_path / "out").read_bytes().count(b"up") == 2, what="the start")
        with hosts.cut(2):
            until(lambda: running.process.poll() is not None, what="the end of the call")
            until(lambda: not running.processes(), what="the end of the ranks on the host that is cut off")
        out = (tmp_path / "out").read_text(encoding="utf-8")
        assert running.process.returncode == 0, out
        assert "the call failed: the agent on hostC was lost" in out
    finally:
        running.close()


def test_nothing_is_left_on_any_host_of_a_pool_whose_process_is_killed(hosts: netns.Hosts, tmp_path: Path) -> None:
    running = start(hosts, WORKS, tmp_path / "out", "hostB:1,hostC:1")
    try:
        until(lambda: (tmp_path / "out").read_bytes().count(b"up") == 2, what="the start")
        running.process.kill()
        assert running.process.wait(GUARD_SECONDS) == -signal.SIGKILL
        running.assert_nothing_left(GUARD_SECONDS)
    finally:
        running.close()


def test_strangers_get_in_nowhere_and_the_pool_goes_on(hosts: netns.Hosts, tmp_path: Path) -> None:
    with strangers(hosts[2].enter, hosts[0].holder, hosts[0].address, tmp_path) as who:
        running = start(hosts, WORKS_UNTIL_TOLD, tmp_path / "out", str(tmp_path))
        try:
            until(lambda: len(list(tmp_path.glob("up*"))) == 2, what="the start")
            who.until_called_again()
            (tmp_path / "go").touch()
            code = running.process.wait(GUARD_SECONDS)
            assert code == 0, (tmp_path / "out").read_text(encoding="utf-8")
            assert who.report().heard == ()
        finally:
            running.close()
