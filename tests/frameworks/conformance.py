"""What ranks run of the conformance suite. Frameworks are told by name; several at once: each rank uses another."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import reference
from cases import OPS, Case, cases
from framework import Array, Call, Framework, load, numpy_dtype
from ranks import wait_until

import ciranda
from ciranda.process_sets import ProcessSet

#: So many calls are under way at a time.
BATCH = 200

Members = tuple[list[int], ProcessSet]


def mine_of(names: Sequence[str]) -> Framework:
    """Return the framework that this rank uses."""
    return load(names[ciranda.rank() % len(names)])


@contextmanager
def _sets() -> Iterator[dict[str, Members]]:
    """All ranks, and those but the second."""
    n = ciranda.size()
    some = ciranda.add_process_set([rank for rank in range(n) if rank != 1 or n < 3])
    yield {"all": (list(range(n)), ciranda.global_process_set), "some": (list(some.ranks or []), some)}
    ciranda.remove_process_set(some)


# --- the matrix


def all_cases(names: Sequence[str], seed: int) -> int:
    """Run every case that all of the frameworks have, in another order on each rank. Returns how many there are."""
    mine = mine_of(names)
    common = [set(cases(load(name))) for name in set(names)]
    todo = [case for case in cases(mine) if all(case in others for others in common)]
    with _sets() as sets:
        _run(mine, todo, sets, seed)
    return len(todo)


def _run(mine: Framework, todo: Sequence[Case], sets: dict[str, Members], seed: int) -> None:
    rng = np.random.default_rng([seed, ciranda.rank()])
    for begin in range(0, len(todo), BATCH):
        batch = [case for case in todo[begin : begin + BATCH] if ciranda.rank() in sets[case.among][0]]
        in_my_order = [batch[index] for index in rng.permutation(len(batch))]
        results = mine.together([_call(mine, case, *sets[case.among]) for case in in_my_order])
        for case, result in zip(in_my_order, results, strict=True):
            _check(mine, case, result, sets[case.among][0])


def _call(mine: Framework, case: Case, ranks: list[int], process_set: ProcessSet) -> Call:
    rank, n = ranks.index(ciranda.rank()), len(ranks)
    tensors = [mine.make(case.inputs(n, index)[rank]) for index in range(case.n_tensors)]
    options = case.options(ranks, rank)
    if process_set is not ciranda.global_process_set:
        options["process_set"] = process_set
    return Call(case.collective, case.form, tensors, options)


def _check(mine: Framework, case: Case, results: Sequence[Any], ranks: list[int]) -> None:
    rank, n = ranks.index(ciranda.rank()), len(ranks)
    wanted = [case.results(n, index)[rank] for index in range(case.n_tensors)]
    there = [each for each in wanted if each is not None]
    assert len(results) == len(there), f"{case}: {len(results)} results, not {len(there)}"
    for result, each in zip(results, there, strict=True):
        reference.check(mine.read(result), each, numpy_dtype(case.dtype), case)


def blocking(names: Sequence[str]) -> None:
    """The same calls three times, one after the other: what is made again may take a shorter way."""
    mine = mine_of(names)
    everyone = (list(range(ciranda.size())), ciranda.global_process_set)
    for case in cases(mine):
        if case.among == "all" and case.rows != "empty" and case.dtype in ("float32", "bfloat16", "int64"):
            for _ in range(3):
                _check(mine, case, mine.blocking(_call(mine, case, *everyone)), everyone[0])


def joined(names: Sequence[str], who: int) -> None:
    """One rank has joined: the others go on without it, and what cannot be without it fails on all of them."""
    mine = mine_of(names)
    n, rank = ciranda.size(), ciranda.rank()
    if rank == who:
        assert mine.ops.join() in range(n)
        return
    try:
        _without(mine, who)
    finally:  # or a failure would leave the one that waits for us
        assert mine.ops.join() in range(n)


def _without(mine: Framework, who: int) -> None:
    others = [each for each in range(ciranda.size()) if each != who]
    todo = [
        case
        for case in cases(mine)
        if case.collective in ("allreduce", "reduce", "allgather", "gather", "broadcast")
        and (case.among, case.rows) == ("all", "uneven")
    ]
    _run(mine, todo, {"all": (others, ciranda.global_process_set)}, seed=who)
    kind, message = error_of(mine, lambda: mine.blocking(_plain(mine, "broadcast", root_rank=who)))
    assert kind == "InvalidArgument", (kind, message)
    assert "'t'" in message, message
    assert f"rank {who}, has joined" in message, message
    everyone = ciranda.global_process_set
    kind, message = error_of(mine, lambda: mine.blocking(_plain(mine, "allreduce", process_set=everyone.needing_all())))
    assert kind == "Mismatch", (kind, message)
    assert f"rank {who}" in message, message
    (mean,) = mine.blocking(_plain(mine, "allreduce", divisor="world"))
    assert mine.read(mean)[0, 0] == np.float32(len(others) / ciranda.size())


# --- gradients


def gradients(names: Sequence[str], dtype: str) -> None:
    """Every collective that has a gradient, through the whole world and a process set."""
    mine = mine_of(names)
    with _sets() as sets:
        for ranks, process_set in sets.values():
            if ciranda.rank() in ranks:
                for factors in ((1.0, 1.0), (0.5, 3.0)):
                    _reduction_gradients(mine, numpy_dtype(dtype), ranks, process_set, factors)
                _move_gradients(mine, numpy_dtype(dtype), ranks, process_set)


def _weight(rank: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The gradient of that rank's result."""
    return (np.arange(float(np.prod(shape))).reshape(shape) % 7 + 2 * rank - 1).astype(dtype)


def _check_gradient(
    mine: Framework,
    function: Callable[[Any], Any],
    array: Array,
    rank: int,
    wanted: Array,
    case: object,
) -> None:
    def weigh(shape: tuple[int, ...]) -> Array:
        return _weight(rank, shape, array.dtype)

    (found,) = mine.gradients(lambda tensors: [function(tensors[0])], [array], weigh)
    reference.check(found, np.asarray(wanted), array.dtype, case)


def _reduction_gradients(
    mine: Framework, dtype: np.dtype[Any], ranks: list[int], process_set: ProcessSet, factors: tuple[float, float]
) -> None:
    n, rank = len(ranks), ranks.index(ciranda.rank())
    scale = {"prescale_factor": factors[0], "postscale_factor": factors[1], "process_set": process_set}
    shape = (2 * n + 1, 3)
    array = np.ones(shape, dtype)
    whole = [reference.wide(_weight(each, shape, dtype)) for each in range(n)]
    parts = [
        reference.wide(_weight(each, (rows, 3), dtype)) for each, rows in enumerate(reference.rows_of(shape[0], n))
    ]
    factor = factors[0] * factors[1]
    for op in ("sum", "average"):
        number, case = OPS[op]["number"], (op, factors, ranks)

        def allreduce(tensor: Any, number: int = number) -> Any:
            return mine.ops.allreduce(tensor, op=number, name="gradient", **scale)

        def reducescatter(tensor: Any, number: int = number) -> Any:
            return mine.ops.reducescatter(tensor, op=number, name="gradient", **scale)

        wanted = reference.allreduce_gradient(whole, op == "average", factor)
        _check_gradient(mine, allreduce, array, rank, wanted, ("allreduce", *case))
        if mine.has("reducescatter"):
            wanted = reference.reducescatter_gradient(parts, op == "average", factor)
            _check_gradient(mine, reducescatter, array, rank, wanted, ("reducescatter", *case))


def _move_gradients(mine: Framework, dtype: np.dtype[Any], ranks: list[int], process_set: ProcessSet) -> None:
    n, rank = len(ranks), ranks.index(ciranda.rank())
    options = {"name": "gradient", "process_set": process_set}
    counts = [each + 1 for each in range(n)]
    whole = [reference.wide(_weight(each, (sum(counts), 3), dtype)) for each in range(n)]
    _check_gradient(
        mine,
        lambda tensor: mine.ops.allgather(tensor, **options),
        np.ones((counts[rank], 3), dtype),
        rank,
        reference.allgather_gradient(whole, counts, rank),
        ("allgather", ranks),
    )
    _check_gradient(
        mine,
        lambda tensor: mine.ops.broadcast(tensor, root_rank=ranks[-1], **options),
        np.ones((sum(counts), 3), dtype),
        rank,
        np.mean(whole, axis=0) * (rank == n - 1),
        ("broadcast", ranks),
    )
    splits = [[(sender + 2 * receiver) % 3 for receiver in range(n)] for sender in range(n)]
    received = [
        reference.wide(_weight(to, (sum(splits[sender][to] for sender in range(n)), 3), dtype)) for to in range(n)
    ]
    _check_gradient(
        mine,
        lambda tensor: mine.ops.alltoall(tensor, splits=splits[rank], **options)[0],
        np.ones((sum(splits[rank]), 3), dtype),
        rank,
        reference.alltoall_gradient(received, splits, rank),
        ("alltoall", ranks),
    )


# --- errors


def error_of(mine: Framework, attempt: Callable[[], object]) -> tuple[str, str]:
    """Return the kind and the message of what `attempt` must fail with."""
    try:
        result = attempt()
    except Exception as error:
        return mine.kind_of(error), mine.message_of(error)
    raise AssertionError(f"no error, but {result!r}")


def _plain(mine: Framework, function: str, dtype: str = "float32", shape: Any = (4, 3), **options: Any) -> Call:
    """Return a call of the name 't' on ones."""
    return Call(function, "single", [mine.make(np.ones(shape, dtype))], {"name": "t", **options})


#: What the last rank does otherwise, and what the message must say of both sides.
MISMATCHES: dict[str, tuple[Callable[[Framework, bool], Call], tuple[str, ...]]] = {
    "shape": (lambda mine, odd: _plain(mine, "allreduce", shape=(2, 3 + odd)), ("[2, 3]", "[2, 4]")),
    "dtype": (
        lambda mine, odd: _plain(mine, "allreduce", dtype="int32" if odd else "float32"),
        ("int32", "float32"),
    ),
    "op": (lambda mine, odd: _plain(mine, "allreduce", op=ciranda.Min if odd else ciranda.Sum), ("min", "sum")),
    "factor": (
        lambda mine, odd: _plain(mine, "allreduce", op=ciranda.Sum, prescale_factor=2.5 if odd else 1.5),
        ("2.5", "1.5"),
    ),
    "root": (lambda mine, odd: _plain(mine, "broadcast", root_rank=int(odd)), ("root", "0", "1")),
    "collective": (
        lambda mine, odd: _plain(mine, "allgather" if odd else "allreduce"),
        ("allgather", "allreduce"),
    ),
    "row": (lambda mine, odd: _plain(mine, "allgather", shape=(2, 3 + odd)), ("[2, 3]", "[2, 4]")),
}


def mismatches(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return what each disagreement ends with; good calls of the same name in between must succeed."""
    mine = mine_of(names)
    is_odd = ciranda.rank() == ciranda.size() - 1
    found = {}
    for what, (call, _) in MISMATCHES.items():
        found[what] = error_of(mine, lambda call=call: mine.blocking(call(mine, is_odd)))
        _works(mine)
    return found


def _works(mine: Framework) -> None:
    (result,) = mine.blocking(_plain(mine, "allreduce", op=ciranda.Sum))
    reference.check(mine.read(result), np.full((4, 3), float(ciranda.size())), numpy_dtype("float32"), "after errors")


def all_work(names: Sequence[str]) -> None:
    for name in names:
        _works(load(name))


def bad_calls(names: Sequence[str]) -> None:
    """Calls that are wrong by themselves: refused, by what is wrong; the engine goes on."""
    mine, n = mine_of(names), ciranda.size()
    gone = ciranda.add_process_set([0])
    number = gone.process_set_id
    ciranda.remove_process_set(gone)
    gone.process_set_id = number
    attempts: list[tuple[Call, str]] = [
        (_plain(mine, "allreduce", op=77), "77|cannot be read|could not take in"),
        (_plain(mine, "allreduce", dtype="bool", op=ciranda.Sum), "bool"),
        (_plain(mine, "allreduce", op=ciranda.Sum, prescale_factor=float("nan")), "finite"),
        (_plain(mine, "allreduce", process_set=gone), f"process set {number}|process_set_id={number}"),
        (_plain(mine, "broadcast", root_rank=n), f"root_rank {n}"),
        (_plain(mine, "broadcast", root_rank=-1), "root_rank -1"),
        (_plain(mine, "allgather", shape=()), "scalar"),
        (_plain(mine, "alltoall", splits=[5] + [0] * (n - 1)), "must add up"),
        (_plain(mine, "alltoall", splits=[5, -1] + [0] * (n - 2)), "-1"),
        (_plain(mine, "alltoall", splits=[4] + [0] * n), f"{n + 1}"),
    ]
    elsewhere = mine.elsewhere()
    if elsewhere is not None:
        attempts.append((Call("allreduce", "single", [elsewhere], {"name": "t"}), "device|meta"))
    for call, text in attempts:
        if mine.has(call.function):
            kind, message = error_of(mine, lambda call=call: mine.blocking(call))
            assert kind == "InvalidArgument", (call, kind, message)
            assert any(part in message.lower() for part in text.split("|")), (call, text, message)
    ciranda.barrier()
    _works(mine)


def all_fail(names: Sequence[str], victim: int) -> dict[str, tuple[str, str]]:
    """Calls of every framework wait for `victim`, which never comes. Returns how they ended."""
    frameworks = {name: load(name) for name in names}
    if ciranda.rank() == victim:
        return {}
    found: dict[str, tuple[str, str]] = {}

    def wait(name: str, mine: Framework) -> None:
        calls = [_plain(mine, "allreduce", name=f"{name}.{index}") for index in range(50)]
        found[name] = error_of(mine, lambda: mine.together(calls))

    threads = [threading.Thread(target=wait, args=each) for each in frameworks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, mine in frameworks.items():
        assert error_of(mine, lambda mine=mine: mine.blocking(_plain(mine, "allreduce")))[0] == "RanksLost", name
    ciranda.shutdown()  # returns when all callbacks have run
    assert [name for name, mine in frameworks.items() if mine.live_calls()] == []
    return found


# --- lifetimes


def programs_outlive_contexts(names: Sequence[str]) -> None:
    """A program made in one world runs in the next, also where that has another size."""
    mine = mine_of(names)

    def average_and_gather(tensor: Any) -> Any:
        average = mine.ops.allreduce(tensor, op=ciranda.Average, name="average")
        return mine.ops.allgather(average, name="gather")

    program = mine.compiled(average_and_gather)

    def check() -> None:
        n, rank = ciranda.size(), ciranda.rank()
        result = mine.read(program(mine.make(np.full((2, 3), rank, np.float32))))
        reference.check(result, np.full((2 * n, 3), (n - 1) / 2), numpy_dtype("float32"), f"world of {n}")

    for _ in range(2):
        check()
    ciranda.shutdown()
    kind, message = error_of(mine, lambda: program(mine.make(np.ones((2, 3), np.float32))))
    assert kind in ("InvalidArgument", "Aborted"), (kind, message)
    assert "init" in message, message

    away = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("CIRANDA_")}
    ciranda.init()
    assert ciranda.size() == 1
    check()
    ciranda.shutdown()
    os.environ.update(away)
    ciranda.init()
    assert ciranda.size() > 1
    check()


def nothing_stays_behind(names: Sequence[str]) -> None:
    """A thousand calls, in flight together and one after the other, of which some fail: all let go of their tensors."""
    mine = mine_of(names)
    held: list[Any] = []

    def make(count: int) -> Any:
        tensor = mine.make(np.ones((count, 3), np.float32))
        held.append(weakref.ref(tensor))
        return tensor

    for turn in range(5):
        calls = [
            Call(function, "single", [make(1 + index % 7)], {"name": f"{function}.{index}"})
            for index in range(90)
            for function in ("allreduce", "allgather")
        ]
        del calls[turn::9]
        mine.together(calls)
        error_of(
            mine, lambda: mine.blocking(Call("allreduce", "single", [make(2 + ciranda.rank() % 2)], {"name": "t"}))
        )
        for index in range(40):
            mine.blocking(Call("allreduce", "single", [make(3)], {"name": f"blocking.{index}"}))
        del calls
    mine.finish()
    ciranda.barrier()  # this call releases what the device used until then
    gc.collect()
    assert len(held) >= 1000
    # Who completed a call for others may still be on its way back.
    wait_until(lambda: mine.live_calls() == 0 and all(each() is None for each in held), must=False)
    assert mine.live_calls() == 0
    assert sum(each() is not None for each in held) == 0, "tensors are still held"
