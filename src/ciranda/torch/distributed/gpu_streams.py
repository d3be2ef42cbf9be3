"""The streams in which the results of a collective on GPUs are finished, and by which others wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

Tensor = torch.Tensor


class GpuStreams:
    """Those of one collective; nothing at all if its tensors are on the CPU. The caller serialises its calls.

    A thread that finishes the results gives their last copies to its current stream. Other threads, and whoever waits
    for a future, order their own streams after them: an operation's wait orders only what the engine copies.
    """

    def __init__(self, result: Sequence[Tensor]) -> None:
        self._devices: list[Any] = list({tensor.device for tensor in result if tensor.is_cuda})
        self._finished: list[Any] = []

    def make_future(self) -> torch.futures.Future[list[Tensor]]:
        """Return a future that orders the streams of who waits after those of who sets its result."""
        return torch.futures.Future(devices=self._devices) if self._devices else torch.futures.Future()

    def note_finish(self) -> None:
        """Note that this thread's current streams have been given the last copies of the results."""
        self._finished = [torch.cuda.current_stream(device).record_event() for device in self._devices]

    def wait_for_finish(self) -> None:
        """Let this thread's current streams wait for those copies, if another thread has made them."""
        for device, event in zip(self._devices, self._finished, strict=True):
            torch.cuda.current_stream(device).wait_event(event)

    @contextmanager
    def of_their_own(self) -> Iterator[None]:
        """Within this, the thread's current streams are none that a program works in."""
        with ExitStack() as stack:
            for device in self._devices:
                stack.enter_context(torch.cuda.stream(torch.cuda.Stream(device)))  # type: ignore[no-untyped-call, unused-ignore]
            yield
