"""Data loaders that read ahead in a thread. No framework is needed.

For example:

    class Shards(BaseDataLoader):
        def __init__(self, paths): self.paths = paths
        def __len__(self): return len(self.paths)
        def _iterate(self): yield from map(numpy.load, self.paths)

    class AsyncShards(AsyncDataLoaderMixin, Shards): ...

    for batch in AsyncShards(async_loader_queue_size=8, paths=paths): ...
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]


class BaseDataLoader:
    """The base of loaders, which iterate over batches. A subclass has `__len__` and `_iterate`."""

    def __len__(self) -> int:
        """The number of batches in one round."""
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def _iterate(self) -> Iterator[Any]:
        """One round of batches."""
        raise NotImplementedError(f"{type(self).__name__} has no _iterate")

    def _process_batch(self, batch: Any) -> Any:
        """Return the object that the user of the loader gets for `batch`; called in the user's thread."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Round:
    """One round of batches, read by a thread of its own. Ends when read to its end, closed, or forgotten."""

    def __init__(self, batches: Iterator[Any], queue_size: int) -> None:
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(queue_size)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(batches,), daemon=True, name="ciranda-data-loader")
        self._thread.start()

    def _read(self, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                if self._closed.is_set():
                    return
                self._queue.put(("batch", batch))
            self._queue.put(("end", None))
        except BaseException as error:  # the wait for a batch raises it
            self._queue.put(("error", error))

    def __iter__(self) -> Iterator[Any]:
        while not self._closed.is_set():
            kind, value = self._queue.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value

    def close(self) -> None:
        """Stop reading; returns when the thread has left."""
        self._closed.set()
        while self._thread.is_alive():
            try:  # make room, so that a reader that waits for it sees the event
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)
        with suppress(queue.Full):  # another thread may wait for a batch
            self._queue.put_nowait(("end", None))


class AsyncDataLoaderMixin:
    """A mixin before a subclass of BaseDataLoader: a thread reads batches ahead, while others are used.

    Every round (`for batch in loader`) has its own thread: rounds may be left before their end. An exception in
    `_iterate` is raised by the wait for the batch.

    Args:
        async_loader_queue_size: the most batches to hold ready; 0 to read in the caller's own thread.
        debug_data_loader: accepted; nothing is printed.
        args: for the next class.
        kwargs: for the next class.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.async_loader_queue_size = async_loader_queue_size
        self._rounds: set[_Round] = set()

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        batches = _Round(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._rounds.add(batches)
        try:
            for batch in batches:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            self._rounds.discard(batches)
            batches.close()

    def close_async_loader(self) -> None:
        """Stop reading ahead, in every active round; these end at the next batch."""
        for batches in list(self._rounds):
            batches.close()
