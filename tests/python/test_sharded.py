"""Classes divided over ranks, and samples of them: decisions without any framework."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda._frameworks.sampling import sample
from ciranda._frameworks.shards import Batches, Shards, Told
from ciranda.errors import InvalidArgumentError, MismatchError


@given(st.integers(1, 200), st.integers(1, 20))
def test_every_class_is_in_one_shard(n_classes: int, n_shards: int) -> None:
    shards = Shards(n_classes, n_shards)
    bounds = [shards.bounds(shard) for shard in range(n_shards)]
    assert [each for first, end in bounds for each in range(first, end)] == list(range(n_classes))
    sizes = [end - first for first, end in bounds]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(st.integers(1, 50), st.integers(1, 6), st.data())
def test_labels_by_place(n_classes: int, n_shards: int, data: st.DataObject) -> None:
    shards = Shards(n_classes, n_shards)
    labels = np.array(data.draw(st.lists(st.integers(0, n_classes - 1), max_size=20)), np.int64)
    found = np.full(len(labels), -1)
    for shard in range(n_shards):
        samples, places = shards.targets(labels, shard)
        assert (found[samples] == -1).all()
        found[samples] = places + shards.bounds(shard)[0]
    assert (found == labels).all()


@given(st.integers(0, 60), st.floats(0.01, 1.0), st.integers(0, 5), st.data())
def test_samples(n_classes: int, rate: float, step: int, data: st.DataObject) -> None:
    positives = data.draw(st.lists(st.integers(0, n_classes - 1), max_size=20)) if n_classes else []
    found = sample(n_classes, positives, rate, seed=3, step=step, shard=1)
    assert len(set(found.tolist())) == len(found) == max(len(set(positives)), math.ceil(rate * n_classes))
    assert (np.sort(found) == found).all()
    assert set(positives) <= set(found.tolist()) <= set(range(n_classes))
    assert (sample(n_classes, positives[::-1], rate, seed=3, step=step, shard=1) == found).all()


def test_samples_differ_by_step_seed_and_shard_and_have_no_favourites() -> None:
    drawn = {tuple(sample(1000, [7], 0.1, *which)) for which in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))}
    assert len(drawn) == 4
    counts = np.zeros(20)
    for step in range(2000):
        counts[sample(20, [3, 3, 11], 0.3, 1, step, 0)] += 1
    assert counts[3] == counts[11] == 2000
    others = np.delete(counts, [3, 11])  # 4 of 18 each time: 444 times each; five standard deviations are 93
    assert others.sum() == 8000
    assert abs(others - 8000 / 18).max() < 93


def _batches(*told: Told, n_ranks: int = 3, mine: int = 1) -> Batches:
    return Batches([each.row() for each in told], mine, n_ranks, n_features=8)


def test_batches_of_all_ranks() -> None:
    batches = _batches(Told(2, 2, False), Told(0, 0, True), Told(3, 3, False))
    assert (batches.sizes, batches.total, batches.largest, batches.are_even) == ([2, 0, 3], 5, 3, False)
    assert batches.needs_gradient
    assert (batches.mine, batches.part(2)) == (slice(2, 2), slice(2, 5))
    assert _batches(*[Told(2, -1, False)] * 3).are_even
    batches.check(np.array([0, 1, 2, 3, 3]), Shards(4, 3))
    with pytest.raises(InvalidArgumentError, match="rank 2 gives label 4 for its sample 1, but the layer"):
        batches.check(np.array([0, 1, 2, 4, -1]), Shards(4, 3))


def test_batches_that_cannot_be() -> None:
    with pytest.raises(MismatchError, match="only 2 of 3 ranks"):
        _batches(Told(1, 1, True), Told(1, 1, True))
    with pytest.raises(InvalidArgumentError, match="rank 1 gives a sharded layer features that are"):
        _batches(Told(1, 1, True), Told(0, 1, False, problem=1), Told(1, 1, True))
    with pytest.raises(InvalidArgumentError, match="rank 0 gives 2 labels for 1 samples"):
        _batches(Told(1, 2, True), Told(1, 1, True), Told(1, 1, True))


@pytest.mark.parametrize("n_classes", [0, -3, 2.5, True])
def test_numbers_of_classes_that_cannot_be(n_classes: int) -> None:
    with pytest.raises(InvalidArgumentError, match="whole number from 1"):
        Shards(n_classes, 2)
