"""Ranks of several hosts, of which few are connected with each other: all hear who leaves and who is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import netns
import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import RanksLostError
from ciranda.process_sets import added_sets

pytestmark = pytest.mark.multiprocess

N_RANKS = 8
RANKS_OF_HOST = 2  # the first of each host is its relay, and rank 0 is above the others


def _host_of(rank: int) -> dict[str, str]:
    name = f"host{rank // RANKS_OF_HOST}"
    return {"CIRANDA_HOST": name, "CIRANDA_HOST_ID": name}


def _several_hosts(**env: str) -> Ranks:
    return Ranks(N_RANKS, env=env, env_of=_host_of)


def _n_connections() -> int:
    connected = set()
    for table in ("tcp", "tcp6"):  # ranks connect by the address that answers first
        with open(f"/proc/self/net/{table}") as lines:
            connected |= {line.split()[9] for line in lines if line.split()[3] == "01"}
    names = []
    for each in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{each}"))
        except OSError:
            continue
    return sum(f"socket:[{inode}]" in names for inode in connected)


def _sum_of_all() -> None:
    got = hvd.allreduce(np.full(50_000, 1.0, np.float32), op=hvd.Sum)
    assert float(got[0]) == float(got[-1]) == hvd.size()


def test_each_is_connected_with_few() -> None:
    with _several_hosts() as ranks:
        at_first = ranks.run(_n_connections)
        usual = at_first[1]  # with the store
        assert [n - usual for n in at_first] == [3, 0, 1, 0, 1, 0, 1, 0]
        ranks.run(_sum_of_all)


def _add_set(ranks: list[int]) -> None:
    hvd.add_process_set(ranks)


def _sum_in_set() -> float:
    [among] = added_sets()
    return float(hvd.allreduce(np.full(50_000, 1.0, np.float32), op=hvd.Sum, process_set=among)[-1])


def _until_a_rank_is_lost(call: Callable[[], object]) -> str:
    try:
        while True:
            call()
    except RanksLostError as error:
        return str(error)


def _leave() -> None:
    hvd.shutdown()


@pytest.mark.parametrize("leavers", [[0, 2, 1], [2, 0, 4]])
def test_those_above_may_leave_before_the_others(leavers: list[int]) -> None:
    """Those that stay call on, hear of each other's end, and end."""
    stay = [3, 5, 6, 7]
    with _several_hosts() as ranks:
        ranks.run(_add_set, stay)
        for rank in leavers:
            ranks.run(_leave, on=[rank], timeout=30)
            assert ranks.run(_sum_in_set, on=stay) == [4.0] * 4
        for rank in stay[:-1]:
            ranks.start(rank, _until_a_rank_is_lost, _sum_in_set)
        ranks.signal(7, signal.SIGKILL)
        for rank in stay[:-1]:
            assert "rank 7 (host host3" in ranks.outcome(rank).value


@pytest.mark.parametrize("lost", [[2], [0], [3, 6]])
def test_a_loss_is_heard_of_by_all(lost: list[int]) -> None:
    with _several_hosts() as ranks:
        others = [rank for rank in range(N_RANKS) if rank not in lost]
        for rank in others:
            ranks.start(rank, _until_a_rank_is_lost, _sum_of_all)
        for rank in lost:
            ranks.signal(rank, signal.SIGKILL)
        for rank in others:
            message = ranks.outcome(rank).value
            assert any(f"rank {each} (host" in message for each in lost), message


_REDUCES_UNTIL_IT_FAILS = """
import signal, numpy, ciranda
ciranda.init()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher notices it, too
ciranda.allreduce(numpy.ones(10), name="first")
print("ready", flush=True)
try:
    while True:
        ciranda.allreduce(numpy.ones(10), name="next")
except ciranda.errors.RanksLostError as error:
    print(error, flush=True)
"""


@pytest.mark.netns
@pytest.mark.ssh
def test_a_host_that_is_cut_off_is_named_on_all_others(hosts: netns.Hosts) -> None:
    """Only the first rank of each host is connected with another host."""
    command = [*hosts[0].enter, sys.executable, "-m", "ciranda.launch.cli", "run", "-F", str(hosts.ssh_config)]
    command += ["-H", "hostA:3,hostB:3,hostC:3", "--no-prefix", "--grace", "60", "--env", "CIRANDA_LINK_TIMEOUT=1"]
    command += [sys.executable, "-c", _REDUCES_UNTIL_IT_FAILS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(9)] == ["ready\n"] * 9
        with hosts.cut(2):
            out, err = job.communicate(timeout=100)
    lines = out.splitlines()
    assert len(lines) == 6, out + err
    for line in lines:
        assert "(host hostC, pid" in line, out
        assert "CIRANDA_LINK_TIMEOUT" in line, out
