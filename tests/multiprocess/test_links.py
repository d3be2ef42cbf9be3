"""Links between hosts that are slow, lose packets, or are cut."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import link
import numpy as np
import pytest
from expected import reduced, values
from ranks import Ranks, cpu_seconds, wait_until

import ciranda as hvd
from ciranda.bench.algorithms import candidates
from ciranda.errors import RanksLostError

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns]

LINK_TIMEOUT = 1.0
# One socket; several on one wire, or one on each of two.
WAYS = {
    "one": (1, {}),
    "three sockets": (1, {"CIRANDA_SOCKETS": "3"}),
    "two wires": (2, {}),
}


@pytest.fixture(autouse=True)
def _skip_without_wires() -> None:
    reason = link.why_not()
    if reason is not None:
        pytest.skip(f"LINKS WITH FAULTS ARE NOT TESTED: {reason}")


def _all_sums() -> None:
    for turn in range(3):
        for count in (1, 300, 5_000, 100_003, 700_001):
            inputs = [values(rank, count, "int32", "sum", turn) for rank in range(hvd.size())]
            got = hvd.allreduce(inputs[hvd.rank()], op=hvd.Sum, name=f"{count}")
            np.testing.assert_array_equal(got, reduced(inputs, "sum"))


@pytest.mark.parametrize("way", ["one", "three sockets"])
def test_results_are_right_over_a_link_with_delay_and_loss(way: str) -> None:
    n_wires, env = WAYS[way]
    with link.two_hosts(n_wires, delay_ms=1, loss=0.01) as hosts, Ranks(2, env=env, hosts=hosts) as ranks:
        ranks.run(_all_sums)


def _algorithm_of_16_mib() -> str:
    return next(each.algorithm for each in candidates("allreduce", 16 << 20) if each.is_chosen)


@pytest.mark.parametrize(("delay_ms", "algorithm"), [(0, "two-shot"), (20, "one-shot")])
def test_a_long_link_is_crossed_once(delay_ms: float, algorithm: str) -> None:
    """As ranks connect they learn how long it is, and two send each other all that they have."""
    with link.two_hosts(delay_ms=delay_ms) as hosts, Ranks(2, hosts=hosts) as ranks:
        assert ranks.run(_algorithm_of_16_mib) == [algorithm, algorithm]


def _start_and_let_run(ranks: Ranks, function: Callable[..., Any], *arguments: Any) -> None:
    """Start a function on both, and return in the middle of it."""
    before = cpu_seconds(ranks.processes[0].pid)
    for rank in range(2):
        ranks.start(rank, function, *arguments)
    wait_until(lambda: cpu_seconds(ranks.processes[0].pid) > before + 0.2)


def _reduce_until_it_fails(count: int) -> tuple[float, str]:
    try:
        while True:
            hvd.allreduce(np.ones(count, np.float32), name="busy")
    except RanksLostError as error:
        return time.monotonic(), str(error)


@pytest.mark.parametrize(("way", "count"), [("one", 10), ("three sockets", 4_000_000), ("two wires", 4_000_000)])
def test_a_cut_link_is_noticed(way: str, count: int) -> None:
    n_wires, env = WAYS[way]
    env = {**env, "CIRANDA_LINK_TIMEOUT": str(LINK_TIMEOUT)}
    with link.two_hosts(n_wires, delay_ms=1) as hosts, Ranks(2, env=env, hosts=hosts) as ranks:
        _start_and_let_run(ranks, _reduce_until_it_fails, count)
        cut_at = time.monotonic()
        hosts.cut(n_wires - 1)
        for rank in range(2):
            failed_at, message = ranks.outcome(rank).value
            assert failed_at > cut_at, message
            assert "CIRANDA_LINK_TIMEOUT" in message
            assert f"rank {1 - rank}" in message or n_wires > 1  # over the other the first tells whom it has lost


def _compute_until_it_fails(_count: int) -> tuple[float, str]:
    handle = hvd.allreduce_async(np.ones(10, np.float32), name="early")
    numbers = np.ones((200, 200), np.float32)
    while not hvd.poll(handle):
        numbers = numbers @ numbers / 200
    try:
        hvd.synchronize(handle)
    except RanksLostError as error:
        return time.monotonic(), str(error)
    raise AssertionError("the other rank has made no call")


@pytest.mark.parametrize("function", [_reduce_until_it_fails, _compute_until_it_fails])
def test_a_cut_link_is_noticed_while_nothing_is_sent(function: Callable[[int], tuple[float, str]]) -> None:
    """Also without a limit of one's own."""
    with link.two_hosts() as hosts, Ranks(2, hosts=hosts) as ranks:
        ranks.start(0, function, 10)
        cut_at = time.monotonic()
        hosts.cut(0)
        failed_at, message = ranks.outcome(0).value
        assert failed_at > cut_at, message
        assert "rank 1" in message
        assert "CIRANDA_LINK_TIMEOUT" in message


def _wait_and_reduce(seconds: float) -> float:
    time.sleep(seconds)
    return float(hvd.allreduce(np.ones(10, np.float32), op=hvd.Sum, name="late")[-1])


def test_nobody_is_lost_on_a_link_that_loses_packets_while_nothing_is_sent() -> None:
    env = {"CIRANDA_LINK_TIMEOUT": str(LINK_TIMEOUT)}
    with link.two_hosts(loss=0.1) as hosts, Ranks(2, env=env, hosts=hosts) as ranks:
        assert ranks.run(_wait_and_reduce, 5 * LINK_TIMEOUT) == [2.0, 2.0]


def _reduce_often() -> float:
    return sum(float(hvd.allreduce(np.ones(2_000_000, np.float32), op=hvd.Sum, name="long")[-1]) for _ in range(100))


def test_a_stopped_rank_is_waited_for_longer_than_for_a_cut_link() -> None:
    """Its host acknowledges what it is sent, and says that there is no room for more."""
    env = {"CIRANDA_LINK_TIMEOUT": str(LINK_TIMEOUT)}
    with link.two_hosts() as hosts, Ranks(2, env=env, hosts=hosts) as ranks:
        _start_and_let_run(ranks, _reduce_often)
        ranks.signal(1, signal.SIGSTOP)
        assert not ranks.has_answered(0, within=3.0)
        ranks.signal(1, signal.SIGCONT)
        assert [ranks.outcome(rank).value for rank in range(2)] == [200.0, 200.0]


def _exchange_inputs_often() -> float:
    """Calls of several threads, so that more is sent at once than a host takes in for a rank that does not read."""

    def often(name: str) -> float:
        return sum(float(hvd.allreduce(np.ones(16_000, np.float32), op=hvd.Sum, name=name)[-1]) for _ in range(1_000))

    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(often, "abcdefgh"))


def test_a_stopped_rank_is_waited_for_where_inputs_travel_as_messages() -> None:
    env = {"CIRANDA_LINK_TIMEOUT": str(LINK_TIMEOUT)}
    with link.two_hosts() as hosts:
        hosts.limit_received(64 << 10)
        with Ranks(2, env=env, hosts=hosts) as ranks:
            _start_and_let_run(ranks, _exchange_inputs_often)
            ranks.signal(1, signal.SIGSTOP)
            assert not ranks.has_answered(0, within=3.0)
            ranks.signal(1, signal.SIGCONT)
            assert [ranks.outcome(rank).value for rank in range(2)] == [16_000.0, 16_000.0]


def test_a_cut_link_to_a_rank_without_room_is_noticed() -> None:
    """Nothing is on its way to a stopped rank: its host is only asked whether there is room by now."""
    env = {"CIRANDA_LINK_TIMEOUT": str(LINK_TIMEOUT)}
    with link.two_hosts(2) as hosts:
        hosts.limit_received(64 << 10)
        with Ranks(2, env=env, hosts=hosts) as ranks:
            _start_and_let_run(ranks, _reduce_until_it_fails, 4_000_000)
            ranks.signal(1, signal.SIGSTOP)
            assert not ranks.has_answered(0, within=2.0)
            hosts.cut(1)
            cut_at = time.monotonic()
            failed_at, message = ranks.outcome(0).value
            ranks.signal(1, signal.SIGCONT)
            # By keep-alive it takes 9 s, less the 2 s that it had waited before.
            assert 0 < failed_at - cut_at < LINK_TIMEOUT + 5
            assert "CIRANDA_LINK_TIMEOUT" in message
            ranks.outcome(1)
