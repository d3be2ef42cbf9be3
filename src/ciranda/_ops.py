"""The common parts of all frameworks' operations: constants, arguments, handles."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._numbering import begin_era
from ciranda._spans import Recorded, profiler, span
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of

Average: Final[int] = _core.REDUCE_OPS["average"]
Sum: Final[int] = _core.REDUCE_OPS["sum"]
Adasum: Final[int] = _core.REDUCE_OPS["adasum"]
Min: Final[int] = _core.REDUCE_OPS["min"]
Max: Final[int] = _core.REDUCE_OPS["max"]
Product: Final[int] = _core.REDUCE_OPS["product"]
BitwiseAnd: Final[int] = _core.REDUCE_OPS["bitwise_and"]
BitwiseOr: Final[int] = _core.REDUCE_OPS["bitwise_or"]
BitwiseXor: Final[int] = _core.REDUCE_OPS["bitwise_xor"]
LogicalAnd: Final[int] = _core.REDUCE_OPS["logical_and"]
LogicalOr: Final[int] = _core.REDUCE_OPS["logical_or"]
LogicalXor: Final[int] = _core.REDUCE_OPS["logical_xor"]

#: The numbers of collectives that several modules call; that of another stands where its functions are.
ALLREDUCE: Final[int] = _core.COLLECTIVES["allreduce"]
ALLGATHER: Final[int] = _core.COLLECTIVES["allgather"]
BROADCAST: Final[int] = _core.COLLECTIVES["broadcast"]
BARRIER: Final[int] = _core.COLLECTIVES["barrier"]
REDUCESCATTER: Final[int] = _core.COLLECTIVES["reducescatter"]
ALLTOALL: Final[int] = _core.COLLECTIVES["alltoall"]
REDUCE: Final[int] = _core.COLLECTIVES["reduce"]
GATHER: Final[int] = _core.COLLECTIVES["gather"]
SCATTER: Final[int] = _core.COLLECTIVES["scatter"]
TRANSFER: Final[int] = _core.COLLECTIVES["send/recv"]
JOIN: Final[int] = _core.COLLECTIVES["join"]

#: The divisor of an average while ranks have joined: the number of those that take part, or of all.
#: The third is Horovod's rule, for calls that need not be averages: "world" for those that are, without weights.
Divisor = Literal["contributors", "world", "world where averaged"]

Result = TypeVar("Result")
Tensor = TypeVar("Tensor")
Other = TypeVar("Other")


_known_terms = functools.lru_cache(maxsize=1024)(_core.Terms)


def terms_of(
    collective: int,
    op: int = Sum,
    root: int = -1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    divides_by_all: bool = False,
) -> _core.Terms:
    """Return what all ranks must ask alike of a call, beside its tensors.

    It is made once for the same numbers; anew for other objects, which may change, or equal a number of another type.
    """
    are_numbers = type(op) is type(root) is int and type(prescale) is type(postscale) is float
    make = _known_terms if are_numbers else _core.Terms
    return make(collective, op, root, prescale, postscale, divides_by_all)


def choose_op(op: int | None, average: bool | None) -> int:
    """Return the reduction that `op`, or the older argument `average`, selects: Average if neither is given."""
    if average is not None:
        if op is not None:
            raise InvalidArgumentError("give either op or average, not both; average is the older form")
        warnings.warn(
            "the argument `average` is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3
        )
        return Average if average else Sum
    if op is None:
        return Average
    return op


def divides_by_all(divisor: Divisor, op: int = Average, weight: float | None = None) -> bool:
    """Return whether an average divides by the number of all ranks, joined ones too."""
    if divisor == "contributors":
        return False
    if divisor == "world":
        return True
    if divisor == "world where averaged":
        return op == Average and weight is None
    raise InvalidArgumentError(f'divisor must be "contributors" or "world", not {divisor!r}')


def is_done_within(operation: _core.Operation, seconds: float) -> bool:
    """Wait for at most so long. Whether the operation is done by then; its wait() raises what it failed with."""
    try:
        operation.wait(seconds)
    except Exception:
        return operation.poll()
    return True


# For threads that wait for a handle whose result another thread is making: two at one handle are rare.
_one_is_finished = threading.Condition()
_n_behind_others = 0


class Handle(Generic[Result]):
    """A pending or completed operation. Keep it, and pass it to `synchronize()` or `poll()`.

    The tensors are kept alive until the operation is done, also if the handle is dropped; but results that need a last
    step (a non-contiguous tensor in place) are only complete after `wait()`. Any number of threads may wait.
    """

    # _finish makes the result: absent while a thread is at it, and afterwards. _result: absent before.
    __slots__ = ("_finish", "_operation", "_result")

    def __init__(self, operation: _core.Operation, finish: Callable[[_core.Operation], Result]) -> None:
        self._operation = operation
        self._finish: Any = finish

    def poll(self) -> bool:
        """Whether the operation is done. Never blocks."""
        return self._operation.poll()

    def wait(self) -> Result:
        """Wait until the operation is done; return its result or raise its error. Ctrl-C interrupts the wait."""
        if profiler.switch._is_profiler_enabled:
            with span("wait"):
                self._operation.wait()
        else:
            self._operation.wait()
        try:
            finish = self._finish
            del self._finish  # of several threads one can: a lock would take longer than the rest
        except AttributeError:
            finish = None
        if finish is None:
            return self._made_by_other()
        try:
            result = self._result = self._made_by(finish)
        except BaseException:  # the next wait tries again
            self._finish = finish
            raise
        finally:
            if _n_behind_others:
                with _one_is_finished:
                    _one_is_finished.notify_all()
        return result

    def _made_by(self, finish: Any) -> Result:
        return finish(self._operation)  # type: ignore[no-any-return]

    def _made_by_other(self) -> Result:
        """Wait for the thread that makes the result, or become the next that tries."""
        global _n_behind_others
        with _one_is_finished:
            _n_behind_others += 1
            try:
                while not (hasattr(self, "_result") or hasattr(self, "_finish")):
                    _one_is_finished.wait(1)  # Ctrl-C may have kept the other from telling
            finally:
                _n_behind_others -= 1
        return self._result if hasattr(self, "_result") else self.wait()

    def is_done_within(self, seconds: float) -> bool:
        """Wait for at most so long. Whether the operation is done by then; wait() raises what it failed with."""
        return is_done_within(self._operation, seconds)

    def then(self, change: Callable[[Result], Other]) -> Handle[Other]:
        """Return a handle of the same operation whose result is `change` of this one's."""
        return Handle(self._operation, lambda _: change(self.wait()))


class InPlaceHandle(Handle[Tensor]):
    """A handle of an operation on one tensor, in place. `bring_back` gets the engine's tensor, and the caller's.

    There may be thousands at a time: each is one object, without a closure, for the garbage collector to look at.
    """

    __slots__ = ("_tensor", "_work")

    def __init__(
        self, operation: _core.Operation, bring_back: Callable[[Tensor, Tensor], Tensor], work: Tensor, tensor: Tensor
    ) -> None:
        self._operation = operation
        self._finish = bring_back
        self._work: Tensor | None = work
        self._tensor = tensor

    def _made_by(self, finish: Any) -> Tensor:
        finish(self._work, self._tensor)
        self._work = None
        return self._tensor


def submit_reduction(
    collective: int,
    inputs: object,
    outputs: object,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    divisor: Divisor,
    weight: float | None = None,
    root: int = -1,
    priority: int = 0,
    splits: list[list[int]] | None = None,
    is_awaited: bool = False,
) -> _core.Operation:
    """Start a collective that combines tensors. `inputs` and `outputs` are as the engine takes them.

    `is_awaited`: the caller waits for it at once.
    """
    by_all = divisor != "contributors" and divides_by_all(divisor, op, weight)
    connected: Any = world.engine or engine()
    if profiler.switch._is_profiler_enabled:
        connected = Recorded(connected, collective)
    return connected.submit(  # type: ignore[no-any-return]
        terms_of(collective, op, root, prescale, postscale, by_all),
        inputs,
        outputs,
        name,
        id_of(process_set),  # positional: looking up keyword names takes as long as the rest
        splits,
        weight,
        priority,
        _core.AWAITED if is_awaited else _core.DEFERRABLE,
    )


def submit_move(
    collective: int,
    inputs: object,
    outputs: object,
    name: str | None,
    process_set: ProcessSet,
    root: int = -1,
    splits: list[list[int]] | None = None,
    is_awaited: bool = False,
) -> _core.Operation:
    """Start a collective without a reduction. See `submit_reduction()`."""
    return submit_reduction(
        collective,
        inputs,
        outputs,
        name,
        Sum,
        1.0,
        1.0,
        process_set,
        "contributors",
        root=root,
        splits=splits,
        is_awaited=is_awaited,
    )


def submit_transfer(
    target: object, peer: int, sender: int, name: str | None, is_numbered: bool = False
) -> _core.Operation:
    """Start to send `target` to rank `peer`, or to receive it from there, whichever of the two is the `sender`.

    Numbered transfers of one name may follow each other before the first is done, and are matched in their order.
    """
    connected = engine()
    pair = connected.pair_with(peer)
    if pair == 0:
        raise InvalidArgumentError(f"rank {connected.rank} cannot exchange with rank {peer}: it is no other rank")
    terms = terms_of(TRANSFER, Sum, sender)
    if profiler.switch._is_profiler_enabled:
        return Recorded(connected, TRANSFER).submit(
            terms, target, target, name, pair, how=_core.NUMBERED if is_numbered else 0
        )
    return connected.submit(terms, target, target, name, pair, how=_core.NUMBERED if is_numbered else 0)


def poll(handle: Handle[Any]) -> bool:
    """Whether the operation of `handle` is done. Never blocks. Raises InvalidArgumentError if it is not a handle."""
    try:
        poll_it = handle.poll
    except AttributeError:
        raise _no_handle(handle) from None
    return poll_it()


def synchronize(handle: Handle[Result]) -> Result:
    """Wait for the operation of `handle` and return its result: a tensor, a list for grouped ones.

    Raises the operation's error (see `ciranda.errors`), and InvalidArgumentError if `handle` is not a handle.
    """
    try:
        wait = handle.wait
    except AttributeError:
        raise _no_handle(handle) from None
    return wait()


def _no_handle(handle: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"{handle!r} is not a handle: asynchronous operations return handles")


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank of the process set has called this, and the results of its earlier calls are there.

    Calls on tensors in GPUs by NCCL return before their results are there. `barrier()` raises HorovodInternalError if a
    rank was lost meanwhile, so that one of them has no result.
    """
    connected: Any = engine()
    connected.await_results()
    if profiler.switch._is_profiler_enabled:
        connected = Recorded(connected, BARRIER)
    connected.run(terms_of(BARRIER), None, None, None, id_of(process_set))


def barrier_async(process_set: ProcessSet = global_process_set) -> Handle[None]:
    """Start `barrier()`. `synchronize(handle)` returns None, once every rank of the process set has called this."""
    operation = engine().submit(terms_of(BARRIER), None, None, None, id_of(process_set))
    return Handle(operation, lambda _: None)


def join_async(process_set: ProcessSet = global_process_set) -> Handle[int]:
    """Start `join()`. `synchronize(handle)` returns the rank that was the last to join."""
    operation = engine().submit_bare(JOIN, [], id_of(process_set))
    begin_era(process_set)
    return Handle(operation, lambda done: done.value())


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Declare that this rank has no more work, and wait until all ranks have joined.

    Until then the others continue without this rank: it contributes nothing to their reductions (and an average divides
    by the number of ranks that take part), and no rows to their allgathers. A collective whose root has joined fails on
    all ranks. After it, all ranks take part again.

    Args:
        device: ignored; accepted for scripts written for Horovod.
        process_set: the set whose collectives this rank leaves out.

    Returns:
        The rank that was the last to join, counted in the whole world.
    """
    return join_async(process_set).wait()
