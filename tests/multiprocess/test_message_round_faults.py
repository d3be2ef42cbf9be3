"""Ranks that share no memory and send each other small inputs (docs/reference/negotiation.md), one of which dies or is
stopped in the middle of it. Also of what they would do instead, and of broadcasts that ranks pass on to each other."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks, cpu_seconds, wait_until

import ciranda as hvd
from ciranda import errors

pytestmark = pytest.mark.multiprocess

APART = {"CIRANDA_SHARED_MEMORY": "0"}
# A rank that only waits for a core on a busy machine must not be missed.
IMPATIENT = {"CIRANDA_STALL_WARNING_SECONDS": "1", "CIRANDA_STALL_SHUTDOWN_SECONDS": "5"}
WAYS = {
    "direct rounds": {},
    "by the log": {"CIRANDA_DIRECT_ROUNDS": "0"},
    "doubling": {"CIRANDA_ALGORITHM": "doubling"},
}


def _reduce_until_it_fails() -> tuple[str, str]:
    try:
        while True:
            assert hvd.allreduce(np.ones(10, np.float32), op=hvd.Sum, name="busy")[-1] == hvd.size()
    except errors.HorovodInternalError as error:
        return type(error).__name__, str(error)


def _broadcast_until_it_fails() -> tuple[str, str]:
    try:
        while True:
            hvd.broadcast(np.ones(1_000_000, np.float32), 0, name="busy")
    except errors.HorovodInternalError as error:
        return type(error).__name__, str(error)


def _in_the_middle(ranks: Ranks, victim: int) -> None:
    before = cpu_seconds(ranks.processes[victim].pid)
    wait_until(lambda: cpu_seconds(ranks.processes[victim].pid) > before + 0.2)


def _state(ranks: Ranks, rank: int) -> str:
    return Path(f"/proc/{ranks.processes[rank].pid}/stat").read_text().rpartition(")")[2].split()[0]


def _all_others_fail(ranks: Ranks, victim: int, expected: str) -> None:
    """Check that each of the others says so, and names the victim."""
    for rank in range(ranks.n_ranks):
        if rank != victim:
            kind, text = ranks.outcome(rank).value
            assert (kind, f"rank {victim}" in text) == (expected, True), text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 2])
def test_sigkill(victim: int, way: str) -> None:
    with Ranks(3, env={**APART, **WAYS[way]}) as ranks:
        for rank in range(3):
            ranks.start(rank, _reduce_until_it_fails)
        _in_the_middle(ranks, victim)
        ranks.signal(victim, signal.SIGKILL)
        _all_others_fail(ranks, victim, "RanksLostError")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 2])
def test_sigstop_for_longer_than_the_limit(victim: int, way: str) -> None:
    with Ranks(3, env={**APART, **IMPATIENT, **WAYS[way]}) as ranks:
        for rank in range(3):
            ranks.start(rank, _reduce_until_it_fails)
        _in_the_middle(ranks, victim)
        ranks.signal(victim, signal.SIGSTOP)
        _all_others_fail(ranks, victim, "TimeoutError")
        ranks.signal(victim, signal.SIGKILL)


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
        assert [ranks.outcome(rank).value for rank in range(3)] == [9000.0] * 3


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
            kind, text = ranks.outcome(rank).value
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
        _all_others_fail(ranks, 3, "RanksLostError")
        ranks.signal(2, signal.SIGKILL)
        time.sleep(0.5)
        before = cpu_seconds(ranks.processes[0].pid)
        time.sleep(1)
        assert cpu_seconds(ranks.processes[0].pid) - before < 0.2
