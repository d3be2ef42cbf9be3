"""The events of a collective in torch.profiler, in the manner of torch's own backends.

    ciranda:all_reduce          from its submission until it is done, on whatever thread
    ciranda:all_reduce submit   its submission: shapes, and how much of which type goes through which group
    ciranda:all_reduce wait     a wait for it, in which this thread runs the progress loop
    ciranda:all_reduce finish   the copy of results to tensors that the engine cannot write to

Only code compiled against torch can write torch's record_param_comms; its attributes are the submission's. While no
profiler runs nothing is recorded, at the cost of reading a flag.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.autograd.profiler

from ciranda.torch.uncompiled import uncompiled

if TYPE_CHECKING:
    from ciranda.torch.distributed.process_group import ProcessGroup
    from ciranda.torch.distributed.work import Work

Method = TypeVar("Method", bound=Callable[..., "Work"])

_profiler: Any = torch.autograd.profiler
_record_with_shapes: Any = getattr(torch._C._profiler, "_RecordFunctionFast", None)


class Span:
    """A collective in a profile, from here to `end()`, which another thread calls: that makes it asynchronous."""

    def __init__(self, name: str) -> None:
        self._name = f"ciranda:{name}"
        self._end: torch.futures.Future[None] = torch.futures.Future()
        record = _profiler.record_function(self._name)
        record.__enter__()
        record._call_end_callbacks_on_future(self._end)

    def part(self, what: str) -> AbstractContextManager[Any]:
        """Record work for it on this thread."""
        context: AbstractContextManager[Any] = _profiler.record_function(f"{self._name} {what}")
        return context

    def end(self) -> None:
        """Report that the collective is done."""
        self._end.set_result(None)

    def wait_for_end(self) -> None:
        """Return when the other thread has reported the end: the profile may end right after."""
        self._end.wait()


def part_of(span: Span | None, what: str) -> AbstractContextManager[Any]:
    """Record work on this thread for a collective, if that is recorded."""
    return nullcontext() if span is None else span.part(what)


def recorded(name: str) -> Callable[[Method], Method]:
    """Have a method of a process group recorded under that name, and the work that it returns."""

    def record(method: Method) -> Method:
        @functools.wraps(method)
        def run(group: ProcessGroup, *arguments: Any, **named: Any) -> Work:
            if not _profiler._is_profiler_enabled:
                return method(group, *arguments, **named)
            span = Span(name)
            given = [found for each in (*arguments, *named.values()) if (found := list(_tensors_in((each,))))]
            with _submission(group, name, given):
                work = method(group, *arguments, **named)
            work.record(span)
            return work

        # As a graph's input a process group shows the compiler nothing.
        return cast(Method, uncompiled(run))

    return record


def _tensors_in(values: Sequence[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)


def _submission(group: ProcessGroup, name: str, given: list[list[torch.Tensor]]) -> AbstractContextManager[Any]:
    """Record the submission, with the attributes that torch's record_param_comms has.

    `given`: the tensors of each argument that has some; of two, c10d has the outputs first.
    """
    if _record_with_shapes is None:
        return nullcontext()
    tensors = [tensor for each in given for tensor in each]
    attributes = {
        "Collective name": name,
        "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
        "In msg nelems": sum(tensor.numel() for each in given[-1:] for tensor in each),
        "Out msg nelems": sum(tensor.numel() for each in given[:1] for tensor in each),
        "Msg bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "Group size": group.size(),
        "Process Group Name": group.group_name,
        "Process Group Description": group.group_desc,
        "Process Group Ranks": str(group.ranks),
        "Rank": group.rank(),
    }
    context: AbstractContextManager[Any] = _record_with_shapes(f"ciranda:{name} submit", tensors, attributes)
    return context
