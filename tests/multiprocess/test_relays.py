"""Ranks on two hosts, whose reports go through relays: rank 0 for the first host, rank 2 for the second."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks, wait_until

import ciranda as hvd
from ciranda import errors

pytestmark = pytest.mark.multiprocess

RELAY, BEHIND_IT = 2, 3
N_LEARNED = 8  # steps, after which names go in groups, and groups are gathered


def _host_of(rank: int) -> dict[str, str]:
    name = f"host{rank // 2}"
    return {"CIRANDA_HOST_ID": name, "CIRANDA_HOST": name}


def _world(env: dict[str, str] | None = None) -> Ranks:
    return Ranks(4, env, _host_of)


def _step() -> None:
    handles = [hvd.allreduce_async(np.full(1000, i), op=hvd.Sum, name=f"gradient {i}") for i in range(20)]
    for i, handle in enumerate(handles):
        assert np.all(hvd.synchronize(handle) == i * hvd.size())


def _steps(n_steps: int) -> None:
    for _ in range(n_steps):
        _step()


def _error_of_steps(n_steps: int = 1_000_000) -> tuple[str, str]:
    """The class of what went wrong, and what it says."""
    try:
        _steps(n_steps)
    except errors.HorovodInternalError as error:
        return type(error).__name__, str(error)
    return "", "nothing went wrong"


def _join_the_world() -> str:
    with pytest.raises(errors.MismatchError) as raised:
        hvd.init()
    assert not hvd.is_initialized()
    return str(raised.value)


def test_ranks_that_differ_about_relays_are_told() -> None:
    def env_of(rank: int) -> dict[str, str]:
        return {**_host_of(rank), **({"CIRANDA_RELAYS": "0"} if rank == RELAY else {})}

    with Ranks(4, env_of=env_of, initialize=False) as ranks:
        texts = ranks.run(_join_the_world)
    for rank, text in enumerate(texts):
        here, there, other = (0, 1, 0) if rank == RELAY else (1, 0, RELAY)
        assert f"CIRANDA_RELAYS is {here} here but {there} on rank {other}" in text


@pytest.mark.parametrize("victim", [0, RELAY])
def test_sigkill_of_a_relay(victim: int) -> None:
    with _world() as ranks:
        ranks.run(_steps, N_LEARNED)
        others = [rank for rank in range(4) if rank != victim]
        for rank in range(4):
            ranks.start(rank, _error_of_steps)
        busy_from = _cpu_seconds(ranks, victim)
        wait_until(lambda: _cpu_seconds(ranks, victim) > busy_from + 0.2)
        ranks.signal(victim, signal.SIGKILL)
        for rank in others:
            kind, text = ranks.outcome(rank).value
            assert kind == "RanksLostError"
            assert f"rank {victim}" in text


def _cpu_seconds(ranks: Ranks, rank: int) -> float:
    fields = Path(f"/proc/{ranks.processes[rank].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _state(ranks: Ranks, rank: int) -> str:
    return Path(f"/proc/{ranks.processes[rank].pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_relay_that_is_stopped_is_named_to_all() -> None:
    with _world({"CIRANDA_STALL_WARNING_SECONDS": "1", "CIRANDA_STALL_SHUTDOWN_SECONDS": "5"}) as ranks:
        ranks.run(_steps, N_LEARNED)
        ranks.signal(RELAY, signal.SIGSTOP)
        wait_until(lambda: _state(ranks, RELAY) == "T")
        others = [0, 1, BEHIND_IT]
        outcomes = ranks.outcomes(_error_of_steps, 1, on=others)
        for outcome in outcomes:
            kind, text = outcome.value
            assert kind == "TimeoutError"
            assert f"rank {RELAY} (host host1" in text
        assert "through which the log comes" in outcomes[-1].value[1]
        ranks.signal(RELAY, signal.SIGKILL)


def test_a_relay_that_is_stopped_for_a_while_goes_on() -> None:
    with _world() as ranks:
        for rank in range(4):
            ranks.start(rank, _steps, 300)
        for _ in range(3):
            ranks.signal(RELAY, signal.SIGSTOP)
            wait_until(lambda: _state(ranks, RELAY) == "T")
            wait_until(lambda: _state(ranks, BEHIND_IT) == "S", must=False, seconds=1)
            ranks.signal(RELAY, signal.SIGCONT)
            wait_until(lambda: _state(ranks, RELAY) != "T")
        for rank in range(4):
            outcome = ranks.outcome(rank)
            assert outcome.error is None, outcome.traceback


def _leave_early(leaving: int) -> tuple[str, str]:
    _steps(N_LEARNED)
    if hvd.rank() != leaving:
        return _error_of_steps(1)
    hvd.shutdown()
    return "", ""


@pytest.mark.parametrize("leaving", [0, RELAY])
def test_a_relay_that_leaves_is_named_to_all(leaving: int) -> None:
    with _world() as ranks:
        for rank, (kind, text) in enumerate(ranks.run(_leave_early, leaving)):
            if rank != leaving:
                assert kind == "AbortedError"
                assert f"rank {leaving}" in text
