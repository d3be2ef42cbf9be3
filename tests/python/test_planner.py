"""Which tensors travel together, where they start and where a program waits: decisions without any framework."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda._frameworks.planner import Bucket, Plan, Sync, Tensor, plan
from ciranda.errors import InvalidArgumentError

MAX_POSITION = 40
Syncs = Literal["few", "each"]


@st.composite
def tensors(draw: st.DrawFn) -> list[Tensor]:
    n = draw(st.integers(0, 12))
    found = []
    for index in range(n):
        ready = draw(st.integers(0, MAX_POSITION))
        readers = draw(st.lists(st.integers(ready, MAX_POSITION), max_size=3))
        dtype = draw(st.sampled_from(["float32", "float16"]))
        is_distributed = draw(st.integers(0, 4)) == 0
        found.append(Tensor(f"t{index}", draw(st.integers(0, 100)), ready, tuple(readers), dtype, is_distributed))
    return found


def _with_plan(check: Callable[[list[Tensor], Plan, int, int, Syncs], None]) -> Any:
    @given(tensors(), st.integers(1, 16), st.integers(0, 250), st.sampled_from(["few", "each"]))
    def run(given_tensors: list[Tensor], nrings: int, bucket_bytes: int, syncs: Syncs) -> None:
        found = plan(given_tensors, nrings, bucket_bytes, end=MAX_POSITION + 1, syncs=syncs)
        check(given_tensors, found, nrings, bucket_bytes, syncs)

    return run


def _every_tensor_once(given_tensors: list[Tensor], found: Plan, nrings: int, bucket_bytes: int, syncs: Syncs) -> None:
    placed = [name for bucket in found.buckets for name in bucket.names] + list(found.local)
    assert sorted(placed) == sorted(tensor.name for tensor in given_tensors)
    assert set(found.local) == {tensor.name for tensor in given_tensors if tensor.is_distributed}


def _buckets_in_turn(given_tensors: list[Tensor], found: Plan, nrings: int, bucket_bytes: int, syncs: Syncs) -> None:
    of = {tensor.name: tensor for tensor in given_tensors}
    for index, bucket in enumerate(found.buckets):
        members = [of[name] for name in bucket.names]
        assert bucket.index == index
        assert bucket.lane == index % nrings
        assert bucket.n_bytes == sum(member.n_bytes for member in members)
        assert bucket.n_bytes <= bucket_bytes or len(members) == 1
        assert len({member.dtype for member in members}) == 1
        assert [member.ready for member in members] == sorted(member.ready for member in members)
    starts = [bucket.start for bucket in found.buckets]
    assert starts == sorted(starts)


def _nothing_read_before_it_is_there(
    given_tensors: list[Tensor], found: Plan, nrings: int, bucket_bytes: int, syncs: Syncs
) -> None:
    of = {tensor.name: tensor for tensor in given_tensors}
    synced = {index: sync.position for sync in found.syncs for index in sync.buckets}
    assert len(synced) == sum(len(sync.buckets) for sync in found.syncs)  # each once
    for bucket in found.buckets:
        members = [of[name] for name in bucket.names]
        assert bucket.start == max(member.ready for member in members)
        readers = [reader for member in members for reader in member.readers]
        assert bucket.start <= synced[bucket.index] <= bucket.due == min(readers, default=found.end)


def _no_sync_before_a_start(
    given_tensors: list[Tensor], found: Plan, nrings: int, bucket_bytes: int, syncs: Syncs
) -> None:
    started: set[int] = set()
    waited: set[int] = set()
    last = 0
    for position, what in found.insertions():
        assert last <= position <= found.end
        last = position
        if isinstance(what, Bucket):
            started.add(what.index)
        else:
            assert what.position == position
            assert set(what.after) == started >= set(what.buckets)
            waited.update(what.buckets)
            assert syncs == "each" or waited == started
    assert started == waited == set(range(len(found.buckets)))


test_every_tensor_is_in_one_place = _with_plan(_every_tensor_once)
test_buckets_take_turns_and_keep_to_their_size = _with_plan(_buckets_in_turn)
test_what_is_read_has_been_waited_for = _with_plan(_nothing_read_before_it_is_there)
test_a_sync_comes_after_the_starts = _with_plan(_no_sync_before_a_start)


@given(tensors(), st.integers(0, 250), st.integers(0, 1000))
def test_ranks_that_give_the_same_in_another_order_have_the_same_plan(
    given_tensors: list[Tensor], bucket_bytes: int, seed: int
) -> None:
    shuffled = random.Random(seed).sample(given_tensors, len(given_tensors))
    first, second = plan(given_tensors, 3, bucket_bytes), plan(shuffled, 3, bucket_bytes)
    assert first == second
    assert first.describe() == second.describe()


def _executes(found: Plan, seed: int, *, is_chained: bool = True) -> bool:
    """Whether two ranks, each of one thread that runs what is ready in an order of its own, come to the end."""
    order = random.Random(seed)
    items = [what for _, what in found.insertions()]
    places = {what.index: place for place, what in enumerate(items) if isinstance(what, Bucket)}
    needs: list[set[int]] = []
    results: list[set[int]] = []
    for place, what in enumerate(items):
        is_sync = isinstance(what, Sync)
        chain = {other for other in range(place) if isinstance(items[other], Sync)} if is_sync and is_chained else set()
        needs.append({places[index] for index in what.after} | chain if isinstance(what, Sync) else set())
        results.append({places[index] for index in what.buckets} if isinstance(what, Sync) else set())
    done: list[set[int]] = [set(), set()]
    blocked: list[int | None] = [None, None]
    for _ in range(2 * len(items)):
        for rank in range(2):
            ready = [place for place in range(len(items)) if place not in done[rank] and needs[place] <= done[rank]]
            running = blocked[rank]
            chosen = running if running is not None else order.choice(ready) if ready else None
            blocked[rank] = chosen
            if chosen is not None and results[chosen] <= done[0] & done[1]:
                done[rank].add(chosen)
                blocked[rank] = None
    return len(done[0]) == len(done[1]) == len(items)


@given(tensors(), st.integers(0, 100), st.sampled_from(["few", "each"]), st.integers(0, 1000))
def test_no_order_of_execution_hangs(given_tensors: list[Tensor], bucket_bytes: int, syncs: Syncs, seed: int) -> None:
    assert _executes(plan(given_tensors, 2, bucket_bytes, syncs=syncs), seed)


def test_a_sync_that_ignores_other_starts_hangs() -> None:
    """The execution above notices what a plan is for."""
    found = plan([Tensor("a", 8, 1, (9,)), Tensor("b", 8, 2, (10,))], 2, bucket_bytes=0, syncs="each")
    assert all(_executes(found, seed, is_chained=False) for seed in range(300))
    careless = replace(found, syncs=tuple(replace(sync, after=sync.buckets) for sync in found.syncs))
    assert not all(_executes(careless, seed, is_chained=False) for seed in range(300))


def test_a_program_with_an_optimizer() -> None:
    gradients = [Tensor(f"w{index}", 60, ready=10 - index, readers=(12 + index,)) for index in range(4)]
    found = plan([*gradients, Tensor("own", 1000, 9, (16,), is_distributed=True)], nrings=2, bucket_bytes=128, end=20)
    assert found.describe() == [
        "8: start w3+w2 (120 bytes) on lane 0",
        "10: start w1+w0 (120 bytes) on lane 1",
        "12: wait for w3+w2, w1+w0",
        "local: own",
    ]
    each = plan(gradients, nrings=2, bucket_bytes=128, end=20, syncs="each")
    assert each.syncs == (Sync(12, (1,), (0, 1)), Sync(14, (0,), (0, 1)))


def test_nothing_to_plan() -> None:
    assert plan([]) == Plan((), (), (), 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"nrings": 0}, "nrings must be a whole number from 1 to 16; got 0"),
        ({"nrings": -2}, "got -2"),
        ({"nrings": 1000}, "got 1000"),
        ({"nrings": 2.0}, "got 2.0"),
        ({"bucket_bytes": -1}, "must not be negative; got -1"),
        ({"end": 3}, "behind the program's end: at 6 of 3"),
        ({"tensors": [Tensor("a", 1, 0), Tensor("a", 2, 1)]}, "two tensors are named a"),
        ({"tensors": [Tensor("a", -1, 0)]}, "a has a negative size or position"),
        ({"tensors": [Tensor("a", 1, 5, (7, 4))]}, "a is read by operator 4, but complete only at position 5"),
    ],
)
def test_what_cannot_be_planned(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        plan(**{"tensors": [Tensor("a", 8, 5, (5,))], **arguments})
