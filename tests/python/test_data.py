"""Data loaders that read ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ciranda.data import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count = count
        self.fail_at = fail_at
        self.n_read = 0
        self.readers: set[int] = set()

    def __len__(self) -> int:
        return self.count

    def _iterate(self) -> Iterator[int]:
        for number in range(self.count):
            if number == self.fail_at:
                raise KeyError("the disk is gone")
            self.readers.add(threading.get_ident())
            self.n_read += 1
            yield number

    def _process_batch(self, batch: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        return 10 * batch


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


@pytest.mark.parametrize("queue_size", [0, 1, 3, 64])
def test_every_batch_comes_in_order_in_every_round(queue_size: int) -> None:
    loader = AsyncNumbers(queue_size, count=20)
    for _ in range(3):
        assert list(loader) == [10 * number for number in range(20)]
    assert len(loader) == 20
    assert (threading.get_ident() in loader.readers) is (queue_size == 0)


def test_it_reads_no_further_than_the_queue() -> None:
    loader = AsyncNumbers(2, count=100)
    batches = iter(loader)
    assert next(batches) == 0
    loader.close_async_loader()
    assert loader.n_read <= 5  # one taken, two in the queue, one in hand, one behind the drained queue
    assert list(batches) == []


def test_a_round_may_be_left_early() -> None:
    loader = AsyncNumbers(2, count=100)
    n_threads = threading.active_count()
    for batch in loader:
        if batch == 30:
            break
    loader.close_async_loader()
    assert threading.active_count() == n_threads
    assert list(loader)[-1] == 990


def test_an_exception_is_raised_where_the_batch_is_waited_for() -> None:
    loader = AsyncNumbers(2, count=10, fail_at=3)
    batches = iter(loader)
    assert [next(batches) for _ in range(3)] == [0, 10, 20]
    with pytest.raises(KeyError, match="the disk is gone"):
        next(batches)


def test_closing_frees_one_who_waits() -> None:
    go_on = threading.Event()

    class Stuck(AsyncDataLoaderMixin, BaseDataLoader):
        def __len__(self) -> int:
            return 2

        def _iterate(self) -> Iterator[int]:
            yield 1
            go_on.wait(20)

    loader = Stuck()
    seen: list[int] = []
    waiting = threading.Thread(target=lambda: seen.extend(loader))
    waiting.start()
    closing = threading.Thread(target=loader.close_async_loader)
    closing.start()
    go_on.set()
    closing.join(10)
    waiting.join(10)
    assert not waiting.is_alive()
    assert seen in ([], [1])


def test_a_loader_must_say_what_it_loads() -> None:
    with pytest.raises(NotImplementedError, match="BaseDataLoader has no _iterate"):
        next(iter(BaseDataLoader()))
    with pytest.raises(NotImplementedError, match="__len__"):
        len(BaseDataLoader())
