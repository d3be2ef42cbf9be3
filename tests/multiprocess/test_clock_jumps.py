"""A wall clock that jumps by days loses nobody, and hides no loss: limits are kept by clocks that only go forward."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import link
import netns
import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import RanksLostError

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns]

LINK_TIMEOUT = 1.0


@pytest.fixture(scope="module")
def jumping_clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has it."""
    library = str(tmp_path_factory.mktemp("clock") / "jumping_clock.so")
    source = str(Path(__file__).with_name("jumping_clock.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", source, "-o", library], check=True)
    return {"LD_PRELOAD": library, "CIRANDA_LINK_TIMEOUT": str(LINK_TIMEOUT)}


def _reduce_and_rest() -> tuple[float, float]:
    """The sum of what comes, busy and idle for several times the limit, and how far the wall clock jumped at most."""
    total, furthest = 0.0, 0.0
    apart = time.time() - time.monotonic()
    for turn in range(60):
        time.sleep(2 * LINK_TIMEOUT if turn == 30 else LINK_TIMEOUT / 20)
        total += float(hvd.allreduce(np.ones(1000, np.float32), op=hvd.Sum, name="sum")[-1])
        furthest = max(furthest, abs(time.time() - time.monotonic() - apart))
    return total, furthest


def _reduce_until_it_fails() -> str:
    try:
        while True:
            hvd.allreduce(np.ones(1000, np.float32), name="busy")
    except RanksLostError as error:
        return str(error)


def test_ranks_stay_and_a_cut_link_is_told_of(jumping_clock: dict[str, str]) -> None:
    if (reason := link.why_not()) is not None:
        pytest.skip(f"CLOCKS THAT JUMP ARE NOT TESTED: {reason}")
    with link.two_hosts() as hosts, Ranks(2, env=jumping_clock, hosts=hosts) as ranks:
        for total, furthest in ranks.run(_reduce_and_rest, timeout=60):
            assert total == 120.0
            assert furthest > 3600
        for rank in range(2):
            ranks.start(rank, _reduce_until_it_fails)
        hosts.cut(0)
        for rank in range(2):
            assert f"rank {1 - rank}" in ranks.outcome(rank).value


_RESTS = """
import time, ciranda
ciranda.init()
for _ in range(40):
    time.sleep(0.1)
    ciranda.barrier()
print(ciranda.size(), flush=True)
"""


@pytest.mark.ssh
def test_agents_and_their_launcher_stay(hosts: netns.Hosts, jumping_clock: dict[str, str]) -> None:
    """The launcher's clock and that of its own host's agent and rank jump; the other host's does not."""
    preload = f"LD_PRELOAD={jumping_clock['LD_PRELOAD']}"
    command = [*hosts[0].enter, "env", preload, sys.executable, "-m", "ciranda.launch.cli", "run"]
    command += ["-F", str(hosts.ssh_config), "-H", "hostA:1,hostB:1", "--no-prefix"]
    command += ["--env", f"CIRANDA_LINK_TIMEOUT={LINK_TIMEOUT}", sys.executable, "-c", _RESTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "2\n2\n")
