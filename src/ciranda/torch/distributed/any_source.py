"""Receiving a message from any source."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from ciranda.torch.distributed.offers import Offers, pause_seconds
from ciranda.torch.distributed.work import Work, late

# Its own annotations leave much of it out.
dist: Any = torch.distributed


class AnySourceWork(dist._Work):  # type: ignore[misc, unused-ignore]
    """A pending message from a rank that is not known before it has sent it."""

    def __init__(
        self, offers: Offers, tag: int, receive: Callable[[int], Work], timeout: timedelta | None = None
    ) -> None:
        """Request a message. `receive` receives it from a rank."""
        super().__init__()
        self._offers = offers
        self._tag = tag
        self._receive = receive
        self._timeout = timeout
        self._lock = threading.Lock()
        self._source: int | None = None
        self._work: Work | None = None
        offers.want()

    def _look(self) -> Work | None:
        with self._lock:
            if self._work is None:
                self._source = self._offers.find(self._tag)
                if self._source is not None:
                    self._work = self._receive(self._source)
            return self._work

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the message has arrived. Raises as other work does."""
        timeout = timeout or self._timeout
        deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
        for n_looks in itertools.count():
            work = self._look()
            if work is not None:
                return work.wait(timeout)
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise late(timeout)
            self._offers.make()
            time.sleep(pause_seconds(n_looks))
        raise AssertionError

    def is_completed(self) -> bool:
        work = self._look()
        return work is not None and work.is_completed()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        return None if self._work is None else self._work.exception()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        assert self._work is not None
        return self._work.result()

    def synchronize(self) -> None:
        self.wait()

    def _source_rank(self) -> int:
        assert self._source is not None, "the message is not here yet: wait()"
        return self._source

    source_rank = _source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

        def complete() -> None:
            try:
                future.set_result(self.result())
            except Exception as error:
                future.set_exception(error)  # type: ignore[arg-type]

        threading.Thread(target=complete, name="ciranda-any-source", daemon=True).start()
        return future
