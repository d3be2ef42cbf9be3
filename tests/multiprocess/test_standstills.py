"""Ranks that certainly wait for each other get an error in seconds, and never those that only seem to."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import MismatchError

pytestmark = pytest.mark.multiprocess

#: Seconds in which the error comes, however busy the machine is; a rank that is only missed fails after 600.
SOON = 100
#: Seconds after which ranks that stand would have been told.
LONG = 3.5


@pytest.fixture(scope="module", params=["in memory", "by messages"])
def two(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    env = {} if request.param == "in memory" else {"CIRANDA_SHARED_MEMORY": "0"}
    with Ranks(2, env=env) as ranks:
        yield ranks


def _sum(name: str, **options: Any) -> float:
    return float(hvd.allreduce(np.ones(3, dtype=np.float32), name=name, op=hvd.Sum, **options)[0])


def _why_not(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(MismatchError) as caught:
        call(*arguments)
    return str(caught.value)


def _agree() -> None:
    assert _sum("agree") == hvd.size()


def _call_different_names(names: list[str]) -> str:
    for name in names * 3:
        _sum(name)  # so that ranks need no coordinator for them
    mine = names[min(hvd.rank(), 1)]
    message = _why_not(_sum, mine)
    for name in names:
        if name != mine:
            assert _why_not(_sum, name).startswith(f"'{name}' can never be done")  # what this rank owed
    for name in names:
        assert _sum(name) == hvd.size()
    return message


def test_ranks_that_wait_for_different_calls_are_told_what_each_waits_for(two: Ranks) -> None:
    for message in two.run(_call_different_names, ["a", "b"], timeout=SOON):
        assert "as ranks wait for each other: rank 0 waits for 'a'; rank 1 waits for 'b'." in message
        assert "different numbers of batches" in message


def test_three_ranks_and_one_that_has_joined(worlds: Any) -> None:
    messages = worlds.of(3).run(_call_different_names, ["c", "d"], timeout=SOON)
    assert all("rank 0 waits for 'c'; ranks 1, 2 wait for 'd'." in message for message in messages)

    def beside_a_join() -> str:
        message = "" if hvd.rank() == 2 else _why_not(_sum, f"e{hvd.rank()}")
        hvd.join()
        _agree()
        return message

    for message in worlds.of(3).run(beside_a_join, timeout=SOON)[:2]:
        assert "rank 0 waits for 'e0'; rank 1 waits for 'e1'; rank 2 joined." in message


def test_all_threads_and_asynchronous_calls_count(two: Ranks) -> None:
    """An idle worker of a pool, and a thread that has ended, are none that could call."""

    def threads() -> list[str]:
        messages = []
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_agree).result()
            own = f"of rank {hvd.rank()}"
            waiting = threading.Thread(target=lambda: messages.append(_why_not(_sum, f"thread {own}")))
            waiting.start()
            pending = [hvd.allreduce_async(np.ones(2), name=f"{i} {own}") for i in range(2)]
            messages.append(_why_not(_sum, f"main {own}"))
            waiting.join()
            messages += [_why_not(hvd.synchronize, handle) for handle in pending]
        return messages

    for messages in two.run(threads, timeout=SOON):
        assert len(messages) == 4
        assert all("and 1 more; rank 1 waits for" in message for message in messages)


def _make_calls_across(other: Callable[[Callable[[], object]], object]) -> None:
    """Rank 0 waits for x, rank 1 for y, which rank 0 calls from elsewhere, after a while."""

    def late() -> None:
        if not isinstance(threading.current_thread(), threading.Timer):
            time.sleep(LONG)
        assert _sum("y") == 2

    if hvd.rank() == 0:
        other(late)
    else:
        assert _sum("y") == 2
        assert _sum("x") == 2
    _agree()


def _in_a_thread(late: Callable[[], object]) -> None:
    thread = threading.Thread(target=late)
    thread.start()
    assert _sum("x") == 2
    thread.join()


def _in_a_timer(late: Callable[[], object]) -> None:
    timer = threading.Timer(LONG, late)
    timer.start()
    assert _sum("x") == 2
    timer.join()


def _between_polls(late: Callable[[], object]) -> None:
    handle = hvd.allreduce_async(np.ones(3, dtype=np.float32), name="x", op=hvd.Sum)
    assert not hvd.poll(handle)
    late()
    hvd.synchronize(handle)


def test_a_rank_with_a_thread_that_may_yet_call_does_not_stand(two: Ranks) -> None:
    for other in (_in_a_thread, _in_a_timer, _between_polls):
        two.run(_make_calls_across, other, timeout=SOON)


def test_sets_that_differ_are_refused(two: Ranks) -> None:
    """At once, and the calls are paired: no rank has yet to get the error of another's set."""

    def differ() -> tuple[list[str], list[float]]:
        messages, seconds, some = [], [], None
        for _ in range(5):
            began = time.monotonic()
            messages.append(_why_not(hvd.add_process_set, [hvd.rank()]))
            seconds.append(time.monotonic() - began)
            some = hvd.add_process_set([0])
            others = hvd.add_process_set([1])
            messages.append(_why_not(hvd.remove_process_set, others if hvd.rank() == 1 else some))
            hvd.remove_process_set(others)
            messages.append(
                _why_not(hvd.remove_process_set, some) if hvd.rank() == 0 else _why_not(hvd.add_process_set, [1])
            )
            hvd.remove_process_set(some)
        _agree()
        return messages, seconds

    for messages, seconds in two.run(differ, timeout=SOON):
        for added, removed, both in zip(messages[::3], messages[1::3], messages[2::3], strict=True):
            assert "rank 0 waits for 'add_process_set [0]'; rank 1 waits for 'add_process_set [1]'." in added
            assert "must add and remove the same process sets" in added
            assert "rank 0 waits for 'remove_process_set [" in removed
            assert "rank 1 waits for 'remove_process_set [" in removed
            assert "rank 0 waits for 'remove_process_set [" in both
            assert "rank 1 waits for 'add_process_set [1]'." in both
        assert min(seconds) < 0.9  # where others wait, ranks begin to look after a second


def test_sets_of_threads_are_added_in_any_order(two: Ranks) -> None:
    """Each rank waits for another set for a while, which its other thread may yet add."""

    def add() -> None:
        begun = threading.Event()

        def add_late() -> hvd.ProcessSet:
            begun.set()
            time.sleep(LONG / 3)
            return hvd.add_process_set([1 - hvd.rank()])

        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(add_late)
            begun.wait()
            sets = {hvd.rank(): hvd.add_process_set([hvd.rank()]), 1 - hvd.rank(): late.result()}
        for rank in (0, 1):
            assert sets[rank].ranks == [rank]
            hvd.remove_process_set(sets[rank])

    two.run(add, timeout=SOON)


def test_ranks_join_with_other_sets() -> None:
    def join() -> None:
        hvd.init()
        mine = hvd.ProcessSet([hvd.rank()])
        hvd.shutdown()
        message = _why_not(hvd.init, None, [mine])
        assert "rank 0 waits for 'add_process_set [0]'; rank 1 waits for 'add_process_set [1]'." in message
        assert not hvd.is_initialized()
        hvd.init(process_sets=[hvd.ProcessSet([0])])
        _agree()

    with Ranks(2, initialize=False) as ranks:
        ranks.run(join, timeout=SOON)


def test_different_numbers_of_batches(two: Ranks) -> None:
    pytest.importorskip("torch")

    def prepare() -> None:
        importlib.import_module("torch._dynamo")  # which takes long, and the first optimizer would

    def train() -> str:
        import torch

        import ciranda.torch as hvd

        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), 0)

        def epoch() -> None:
            for _ in range(5 + hvd.rank()):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
            hvd.allreduce(torch.tensor(1.0), name="accuracy")

        return _why_not(epoch)

    two.run(prepare, timeout=200)
    for message in two.run(train, timeout=SOON):
        assert "rank 0 waits for 'accuracy'; rank 1 waits for '" in message
