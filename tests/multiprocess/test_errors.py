"""Ranks that disagree, or make impossible calls: one clear error on every rank, and the engine goes on working."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import HorovodInternalError, InvalidArgumentError, MismatchError

pytestmark = pytest.mark.multiprocess

Call = Callable[[int], Any]


def _ones(shape: Any = 4, dtype: str = "float32") -> Any:
    return np.ones(shape, dtype)


# What the last rank does differently, and what the message must say of both sides.
DISAGREEMENTS: dict[str, tuple[Call, list[str]]] = {
    "shape": (lambda odd: hvd.allreduce(_ones((2, 3 + odd)), name="t"), ["[2, 3]", "[2, 4]"]),
    "rank of the shape": (lambda odd: hvd.allreduce(_ones((6,) if odd else (2, 3)), name="t"), ["[6]", "[2, 3]"]),
    "dtype": (
        lambda odd: hvd.allreduce(_ones(4, "float64" if odd else "float32"), name="t"),
        ["float32", "float64"],
    ),
    "op": (lambda odd: hvd.allreduce(_ones(), name="t", op=hvd.Min if odd else hvd.Sum), ["min", "sum"]),
    "prescale": (lambda odd: hvd.allreduce(_ones(), name="t", prescale_factor=2.5 if odd else 1.5), ["2.5", "1.5"]),
    "postscale": (lambda odd: hvd.allreduce(_ones(), name="t", postscale_factor=2.5 if odd else 1.5), ["2.5", "1.5"]),
    "root": (lambda odd: hvd.broadcast(_ones(), root_rank=odd, name="t"), ["root", "0", "1"]),
    "kind": (
        lambda odd: hvd.allgather(_ones(), name="t") if odd else hvd.allreduce(_ones(), name="t"),
        ["allgather", "allreduce"],
    ),
    "other dimensions of allgather": (lambda odd: hvd.allgather(_ones((2, 3 + odd)), name="t"), ["[2, 3]", "[2, 4]"]),
    "number of tensors": (lambda odd: hvd.grouped_allreduce([_ones()] * (2 + odd), name="t"), ["2", "3"]),
    "shape in a group": (
        lambda odd: hvd.grouped_allreduce([_ones(), _ones(5 + odd)], name="t"),
        ["[5]", "[6]"],
    ),
}


def _disagree(what: str) -> None:
    DISAGREEMENTS[what][0](int(hvd.rank() == hvd.size() - 1))


def _agree() -> None:
    np.testing.assert_array_equal(hvd.allreduce(_ones(), op=hvd.Sum, name="t"), _ones() * hvd.size())


@pytest.mark.parametrize("n_ranks", [2, 4])
@pytest.mark.parametrize("what", list(DISAGREEMENTS))
def test_disagreement(worlds: Any, n_ranks: int, what: str) -> None:
    world = worlds.of(n_ranks)
    for _ in range(2):
        errors = world.errors(_disagree, what)
        assert {type(error) for error in errors} == {MismatchError}
        assert all(isinstance(error, HorovodInternalError) for error in errors)
        messages = {str(error) for error in errors}
        assert len(messages) == 1, messages
        message = messages.pop()
        for part in ["'t'", f"rank {n_ranks - 1}", *DISAGREEMENTS[what][1]]:
            assert part in message, message
        world.run(_agree)


def _change_together() -> None:
    for shape in ((3,), (2, 2), (), (3,)):
        for dtype in ("float32", "int16"):
            result = hvd.allreduce(np.ones(shape, dtype), name="changing", op=hvd.Sum)
            np.testing.assert_array_equal(result, np.full(shape, hvd.size()))


def test_ranks_may_change_a_tensor_together(world: Ranks) -> None:
    world.run(_change_together)


def _twice(is_refused: Path) -> list[str]:
    """Submit a name twice on rank 0 and once, when that was refused, on the others; return the errors."""
    handles, messages = [], []
    while hvd.rank() > 0 and not is_refused.exists():
        time.sleep(0.01)
    for _ in range(2 if hvd.rank() == 0 else 1):
        try:
            handles.append(hvd.allreduce_async(_ones(), name="twin"))
        except InvalidArgumentError as error:
            messages.append(str(error))
    is_refused.touch()
    for handle in handles:
        try:
            hvd.synchronize(handle)
        except (MismatchError, InvalidArgumentError) as error:
            messages.append(str(error))
    return messages


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_duplicate_name(worlds: Any, n_ranks: int, tmp_path: Path) -> None:
    world = worlds.of(n_ranks)
    results = world.run(_twice, tmp_path / "refused")
    assert results[0], "a duplicate name passed unnoticed"
    for messages in results:
        for message in messages:
            assert "'twin'" in message
            assert "rank" in message
    world.run(_agree)


def _impossible() -> None:
    for call, pattern in (
        (lambda: hvd.allreduce(np.ones(2, complex), op=hvd.Max), "complex128"),
        (lambda: hvd.allreduce(np.ones(2, bool), op=hvd.Sum), "bool"),
        (lambda: hvd.allreduce(_ones(), op=77), "77"),
        (lambda: hvd.broadcast(_ones(), root_rank=hvd.size()), "root"),
        (lambda: hvd.broadcast(_ones(), root_rank=-1), "root"),
        (lambda: hvd.allgather(np.float32(1)), "scalar"),
        (lambda: hvd.grouped_allreduce([]), "no tensor"),
    ):
        with pytest.raises(InvalidArgumentError, match=pattern):
            call()
    _agree()


def test_impossible_calls_fail_at_once(world: Ranks) -> None:
    world.run(_impossible)


def _join_twice() -> None:
    n, rank = hvd.size(), hvd.rank()
    if rank == 0:
        first = hvd.join_async()
        if n > 1:
            with pytest.raises(InvalidArgumentError, match=r"join\(\) is pending already on rank 0; join once"):
                hvd.join()
        for other in range(1, n):
            hvd.send(_ones(), other)
        hvd.synchronize(first)
    else:
        hvd.recv(_ones(), 0)
        hvd.join()
    _agree()


def test_joining_twice_is_refused(world: Ranks) -> None:
    world.run(_join_twice)


# What may go wrong in any call: the calls, given whether this rank is the one that errs.
MISTAKES: tuple[Callable[[bool, str], hvd.Handle[Any]], ...] = (
    lambda errs, name: hvd.allreduce_async(_ones((5 + errs, 2)), name=name),
    lambda errs, name: hvd.allreduce_async(_ones(30_000, "int64" if errs else "int32"), name=name, op=hvd.Sum),
    lambda errs, name: hvd.allreduce_async(_ones(), name=name, weight=-1.0 if errs else 1.0),
    lambda errs, name: hvd.allreduce_async(_ones(), name=name, divisor="world" if errs else "contributors"),
    lambda errs, name: hvd.broadcast_async(_ones(30_000), int(errs), name=name),
    lambda errs, name: hvd.alltoall_async(_ones(9), [9 + errs] + [0] * (hvd.size() - 1), name=name),
    lambda errs, name: hvd.reduce_async(_ones(), 0, name=name) if errs else hvd.gather_async(_ones(), 0, name=name),
    lambda errs, name: hvd.grouped_allreduce_async([_ones()] * (2 + errs), name=name),
    lambda errs, name: hvd.reducescatter_async(_ones(30_000), op=hvd.Max if errs else hvd.Min, name=name),
)


def _make_mistakes(n_steps: int) -> list[int]:
    """Several calls at once, in any order, of which some fail, on all ranks; and in between ranks that join."""
    together, alone = np.random.default_rng(1), np.random.default_rng([2, hvd.rank()])
    n, rank = hvd.size(), hvd.rank()
    for step in range(n_steps):
        planned = [tuple(together.integers([len(MISTAKES), n, 5])) for _ in range(together.integers(1, 8))]
        handles = {}
        for index in alone.permutation(len(planned)):
            what, who, is_wrong = planned[index]
            handles[index] = MISTAKES[what](rank == who and is_wrong < 2, f"{index}.{what}")
        for index, (what, _, is_wrong) in enumerate(planned):
            try:
                hvd.synchronize(handles[index])
            except (MismatchError, InvalidArgumentError):
                assert is_wrong < 2, (step, what)
            else:
                assert is_wrong >= 2, (step, what)
        if step % 10 == 9:
            if rank != together.integers(n):
                assert hvd.allreduce(_ones(), op=hvd.Sum, name="some")[0] == n - 1
            hvd.join()
    return together.integers(1000, size=3).tolist()


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_any_mix_of_mistakes_leaves_the_engine_usable(worlds: Any, n_ranks: int) -> None:
    world = worlds.of(n_ranks)
    assert len({tuple(each) for each in world.run(_make_mistakes, 150)}) == 1
    world.run(_agree)


def test_a_missing_rank_is_named_then_fails_the_call() -> None:
    def one_missing() -> str:
        if hvd.rank() == 1:
            return ""
        with pytest.raises(HorovodInternalError) as caught:
            hvd.allreduce(_ones(), name="lonely")
        return str(caught.value)

    env = {"CIRANDA_STALL_WARNING_SECONDS": "0.5", "CIRANDA_STALL_SHUTDOWN_SECONDS": "1"}
    with Ranks(3, env=env) as ranks:
        messages = ranks.run(one_missing)
        warnings = ranks.stderr(0) + ranks.stderr(1) + ranks.stderr(2)
        for text in [warnings, messages[0], messages[2]]:
            assert "lonely" in text
            assert "rank 1" in text or "ranks 1" in text
