"""Ranks that share no memory and send each other small inputs (docs/reference/negotiation.md), one of which dies or is
stopped in the middle of it. Also of what they would do instead, and of broadcasts that ranks pass on to each other."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks, assert_in_time, cpu_seconds, wait_until

import ciranda as hvd
from ciranda import errors

pytestmark = pytest.mark.multiprocess

APART = {"CIRANDA_SHARED_MEMORY": "0"}
IMPATIENT = {"CIRANDA_STALL_WARNING_SECONDS": "0.2", "CIRANDA_STALL_SHUTDOWN_SECONDS": "1"}
WAYS = {
    "direct rounds": {},
    "by the log": {"CIRANDA_DIRECT_ROUNDS": "0"},
    "doubling": {"CIRANDA_ALGORITHM": "doubling"},
}


def _reduce_until_it_fails() -> tuple[float, str, str]:
    try:
        while True:
            assert hvd.allreduce(np.ones(10, np.float32), op=hvd.Sum, name="busy")[-1] == hvd.size()
    except errors.HorovodInternalError as error:
        return time.monotonic(), type(error).__name__, str(error)


def _broadcast_until_it_fails() -> tuple[float, str, str]:
    try:
        while True:
            hvd.broadcast(np.ones(1_000_000, np.float32), 0, name="busy")
    except errors.HorovodInternalError as error:
        return time.monotonic(), type(error).__name__, str(error)


def _in_the_middle(ranks: Ranks, victim: int) -> None:
    before = cpu_seconds(ranks.processes[victim].pid)
    wait_until(lambda: cpu_seconds(ranks.processes[victim].pid) > before + 0.2, seconds=30)


def _state(ranks: Ranks, rank: int) -> str:
    return Path(f"/proc/{ranks.processes[rank].pid}/stat").read_text().rpartition(")")[2].split()[0]


def _last_failure(ranks: Ranks, victim: int, expected: str) -> float:
    """When the last of the others failed; each must have said so, and named the victim."""
    times = []
    for rank in range(ranks.n_ranks):
        if rank != victim:
            failed_at, kind, text = ranks.outcome(rank, 20).value
            assert (kind, f"rank {victim}" in text) == (expected, True), text
            times.append(float(failed_at))
    return max(times)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 2])
def test_sigkill(victim: int, way: str) -> None:
    def until_all_others_know() -> float:
        with Ranks(3, env={**APART, **WAYS[way]}) as ranks:
            for rank in range(3):
                ranks.start(rank, _reduce_until_it_fails)
            _in_the_middle(ranks, victim)
            ranks.signal(victim, signal.SIGKILL)
            killed_at = time.monotonic()
            return _last_failure(ranks, victim, "RanksLostError") - killed_at

    assert_in_time(until_all_others_know, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 2])
def test_sigstop_for_longer_than_the_limit(victim: int, way: str) -> None:
    def until_all_others_give_up() -> float:
        with Ranks(3, env={**APART, **IMPATIENT, **WAYS[way]}) as ranks:
            for rank in range(3):
                ranks.start(rank, _reduce_until_it_fails)
            _in_the_middle(ranks, victim)
            stopped_at = time.monotonic()
            ranks.signal(victim, signal.SIGSTOP)
            took = _last_failure(ranks, victim, "TimeoutError") - stopped_at
            ranks.signal(victim, signal.SIGKILL)
        assert took > 0.8, "the limit is a second"
        return took

    assert_in_time(until_all_others_give_up, 5)


def _reduce_often() -> float:
    return sum(float(hvd.allreduce(np.ones(10), op=hvd.Sum, name="busy")[7]) for _ in range(3000))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 2])
def test_sigstop_and_sigcont(victim: int, way: str) -> None:
    with Ranks(3, env={**APART, **WAYS[way]}) as ranks:
        for rank in range(3):
            ranks.start(rank, _reduce_often)
        for _ in range(3):
            ranks.signal(victim, signal.SIGSTOP)
            wait_until(lambda: _state(ranks, victim) == "T")
            wait_until(lambda: _state(ranks, 1) == "S", must=False, seconds=1)
            ranks.signal(victim, signal.SIGCONT)
            wait_until(lambda: _state(ranks, victim) != "T")
        assert [ranks.outcome(rank, 60).value for rank in range(3)] == [9000.0] * 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("algorithm", ["tree", "chain"])
def test_a_rank_that_passes_broadcasts_on(algorithm: str, number: signal.Signals) -> None:
    """Those behind the one after it know of no other than that, and yet name the one that is to blame."""
    victim = 1
    with Ranks(4, env={**APART, **IMPATIENT, "CIRANDA_ALGORITHM": algorithm}) as ranks:
        for rank in range(4):
            ranks.start(rank, _broadcast_until_it_fails)
        _in_the_middle(ranks, victim)
        ranks.signal(victim, number)
        for rank in (0, 2, 3):
            _, kind, text = ranks.outcome(rank, 20).value
            assert kind == ("RanksLostError" if number == signal.SIGKILL else "TimeoutError")
            assert f"rank {victim}" in text, text
        ranks.signal(victim, signal.SIGKILL)


def test_a_rank_of_a_broken_world_costs_nothing_until_it_ends() -> None:
    """Also when others end: what tells it of them is taken, though nobody wants to know."""
    with Ranks(4, env=APART) as ranks:
        for rank in range(4):
            ranks.start(rank, _reduce_until_it_fails)
        _in_the_middle(ranks, 3)
        ranks.signal(3, signal.SIGKILL)
        _last_failure(ranks, 3, "RanksLostError")
        ranks.signal(2, signal.SIGKILL)
        time.sleep(0.5)
        before = cpu_seconds(ranks.processes[0].pid)
        time.sleep(1)
        assert cpu_seconds(ranks.processes[0].pid) - before < 0.2
