"""Connections between hosts for data: made when two ranks first use them, while all else goes on."""

from __future__ import annotations

import itertools
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress

import link
import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import RanksLostError

pytestmark = pytest.mark.multiprocess

COUNT = 200_000  # too many numbers for messages


def _n_sockets() -> int:
    names = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{each}"))
    return sum(name.startswith("socket:") for name in names)


def _sum_in(ranks: list[int]) -> list[float]:
    """Of a call among some ranks; its first and last number."""
    among = hvd.add_process_set(ranks)
    got = [0.0, 0.0]
    if hvd.rank() in ranks:
        result = hvd.allreduce(np.full(COUNT, hvd.rank() + 1.0, np.float32), op=hvd.Sum, process_set=among)
        got = [float(result[0]), float(result[-1])]
    hvd.remove_process_set(among)
    return got


def _sum_of_all() -> None:
    got = hvd.allreduce(np.full(COUNT, 1.0, np.float32), op=hvd.Sum)
    assert float(got[0]) == float(got[-1]) == hvd.size()


def _grow_by_pairs() -> list[int]:
    """How many sockets come with a call of two ranks, with the same again, and with one of all pairs."""
    counts = [_n_sockets()]
    for ranks in ([0, 3], [0, 3], [0, 1, 2, 3]):
        if len(ranks) == 2:
            assert _sum_in(ranks) == ([5.0, 5.0] if hvd.rank() in ranks else [0.0, 0.0])
        else:
            hvd.alltoall(np.zeros(4 * COUNT, np.float32))
        hvd.barrier()
        counts.append(_n_sockets())
    return [after - before for before, after in itertools.pairwise(counts)]


@pytest.mark.parametrize("n_sockets", [1, 2])
def test_a_pair_connects_when_it_is_first_used(n_sockets: int) -> None:
    env = {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_SOCKETS": str(n_sockets), "CIRANDA_DIRECT_ROUNDS": "0"}
    with Ranks(4, env=env) as ranks:
        grown = ranks.run(_grow_by_pairs)
    assert [each[0] for each in grown] == [n_sockets, 0, 0, n_sockets]
    assert [each[1] for each in grown] == [0, 0, 0, 0]
    assert [sum(each) for each in grown] == [3 * n_sockets] * 4


def _reduce_until_it_fails() -> str:
    try:
        while True:
            hvd.allreduce(np.ones(10, np.float32), name="small")
    except RanksLostError as error:
        return str(error)


def test_a_rank_that_ends_before_its_pairs_were_used_is_named() -> None:
    with Ranks(3, env={"CIRANDA_SHARED_MEMORY": "0"}) as ranks:
        for rank in (0, 2):
            ranks.start(rank, _reduce_until_it_fails)
        ranks.signal(1, signal.SIGKILL)
        for rank in (0, 2):
            assert "rank 1" in ranks.outcome(rank).value


def _listener() -> tuple[str, int]:
    """Where this process listens."""
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(each))) as found:
            if found.family == socket.AF_INET and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                address: tuple[str, int] = found.getsockname()
                return address
    raise AssertionError("this process does not listen")


def _n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_strangers_at_the_open_listener_change_nothing() -> None:
    """They are many, stay, and talk nonsense; meanwhile a pair is used for the first time."""
    with Ranks(2, env={"CIRANDA_SHARED_MEMORY": "0"}) as ranks:
        before = ranks.run(_n_descriptors)
        addresses = ranks.run(_listener)
        strangers: list[socket.socket] = []
        for turn in range(int(os.environ.get("STRANGERS", "1000"))):
            stranger = socket.create_connection(addresses[turn % 2])
            with suppress(OSError):
                stranger.send(b"" if turn % 3 == 0 else b"GET / HTTP/1.1\r\n" + b"x" * 200)
            strangers.append(stranger)
            if len(strangers) > 400:
                strangers.pop(0).close()
            if turn % 100 == 50:
                assert max(ranks.run(_n_descriptors, on=[0])) < before[0] + 80
            if turn == 500:
                ranks.run(_sum_of_all)
        ranks.run(_sum_of_all)
        for stranger in strangers:
            stranger.close()


# --- between two hosts with two networks, of which one fails


@pytest.fixture
def hosts() -> Iterator[link.Hosts]:
    reason = link.why_not()
    if reason is not None:
        pytest.skip(f"CONNECTIONS THAT FAIL ARE NOT TESTED: {reason}")
    with link.two_hosts(2) as made:
        yield made


def _wait_beside_others() -> float:
    """Begin a call of ranks 0 and 2, make others of ranks 0 and 1, and end the first."""
    between = hvd.add_process_set([0, 2])
    within = hvd.add_process_set([0, 1])
    handle = None
    if hvd.rank() in (0, 2):
        handle = hvd.allreduce_async(np.ones(COUNT, np.float32), op=hvd.Sum, process_set=between, name="between")
    if hvd.rank() in (0, 1):
        for _ in range(200):
            got = hvd.allreduce(np.ones(1_000, np.float32), op=hvd.Sum, process_set=within, name="within")
            assert float(got[0]) == 2.0
    if handle is None:
        return 0.0
    assert not hvd.poll(handle)
    return float(hvd.synchronize(handle)[-1])


@pytest.mark.netns
def test_a_lane_waits_for_its_pair_and_others_go_on(hosts: link.Hosts) -> None:
    with Ranks(4, hosts=hosts, env={"CIRANDA_LINK_TIMEOUT": "60"}) as ranks:
        hosts.cut(1)
        for rank in range(4):
            ranks.start(rank, _wait_beside_others)
        assert [ranks.outcome(rank).error for rank in (1, 3)] == [None, None]
        assert not ranks.has_answered(0, within=0.5)
        hosts.relays[1].send_signal(signal.SIGCONT)
        assert [ranks.outcome(rank).value for rank in (0, 2)] == [2.0, 2.0]


def _fail_to_connect() -> str:
    with pytest.raises(RanksLostError) as failed:
        _sum_of_all()
    return str(failed.value)


@pytest.mark.netns
def test_a_pair_that_cannot_be_connected_is_an_error_of_all_that_names_both(hosts: link.Hosts) -> None:
    with Ranks(2, hosts=hosts, env={"CIRANDA_START_TIMEOUT": "3"}) as ranks:
        hosts.cut(1)
        for message in ranks.run(_fail_to_connect):
            assert "rank 0 (host host0" in message
            assert "cannot be connected to for its data, from rank 1 (host host1" in message
            assert link.address(1, 0) in message
            assert "could not be reached in 3 seconds (CIRANDA_START_TIMEOUT)" in message
            assert "CIRANDA_INTERFACE names the one to use" in message
