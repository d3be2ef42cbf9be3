"""Which samples each rank trains with, as its model sees them, in each way to give `fit()` data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fitting import BACKEND, KERAS
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

N_SAMPLES = 48
BATCH = 12  # of all ranks
EPOCHS = 2

Steps = list[list[int]]


def samples(which: str) -> tuple[Steps, list[str]]:
    """Return the numbers of the samples of each step of this rank, and what it was warned of."""
    import warnings

    import keras

    import ciranda.keras as hvd

    rank, size = hvd.rank(), hvd.size()
    x = np.arange(N_SAMPLES, dtype=np.float32)[:, None]
    y = x + 1
    steps: Steps = []

    class Seen(keras.layers.Layer):
        def call(self, inputs: Any, training: bool = False) -> Any:
            try:
                found = np.asarray(inputs)[:, 0].astype(int).tolist()
            except Exception:  # while the model is built
                return inputs
            if training:
                steps.append(found)
            return inputs

    class ByHand(getattr(keras.utils, "PyDataset", keras.utils.Sequence)):
        def __len__(self) -> int:
            return N_SAMPLES // BATCH

        def __getitem__(self, index: int) -> Any:
            mine = slice(index * BATCH + rank * BATCH // size, index * BATCH + (rank + 1) * BATCH // size)
            return x[mine], y[mine]

    def dataset(shards: bool) -> Any:
        import tensorflow as tf

        whole = tf.data.Dataset.from_tensor_slices((x, y))
        return (whole.shard(size, rank) if shards else whole).batch(BATCH // size)

    keras.utils.set_random_seed(rank)
    model = keras.Sequential([keras.layers.InputLayer((1,)), Seen(), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-5), name=which), "mse", run_eagerly=True)
    given: dict[str, Any] = {"batch_size": BATCH // size, "shuffle": False}
    if which in ("all", "all in any order"):
        given |= {"x": x, "y": y, "shuffle": which != "all"}
    elif which == "every so many":
        given |= {"x": x[rank::size], "y": y[rank::size]}
    else:
        steps_per_epoch = 2 if which == "fewer steps" else None
        made = {
            "all of a dataset": lambda: dataset(False),
            "a shard": lambda: dataset(True),
            "by hand": ByHand,
        }
        batches = hvd.GlobalBatches(x, y, batch_size=BATCH, shuffle=True)
        given = {"x": made[which]() if which in made else batches, "shuffle": False, "steps_per_epoch": steps_per_epoch}
    n_epochs = 2 * EPOCHS if which == "fewer steps" else EPOCHS
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    if which == "looked at" and rank == 0:
        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: given["x"][0]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(**given, epochs=n_epochs, verbose=0, callbacks=callbacks)
    return steps, [str(each.message) for each in caught if "same data" in str(each.message)]


def flat(steps: Steps) -> list[int]:
    return [sample for step in steps for sample in step]


DATASETS = pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.data")


@pytest.mark.parametrize("which", ["all", pytest.param("all of a dataset", marks=[DATASETS, pytest.mark.slow])])
def test_the_same_data_on_all_ranks_is_told(two: Ranks, which: str) -> None:
    (first, told), (second, other) = two.run(samples, which)
    assert first == second
    assert sorted(flat(first)) == sorted([*range(N_SAMPLES)] * EPOCHS)
    assert len(told) == 1, told
    assert "the same loss" in told[0]
    assert "GlobalBatches" in told[0]
    assert not other


@pytest.mark.slow
def test_the_same_data_in_other_orders(two: Ranks) -> None:
    """As scripts for Horovod do: each rank trains with all of it."""
    (first, told), (second, other) = two.run(samples, "all in any order")
    assert first != second
    for steps in (first, second):
        assert sorted(flat(steps)) == sorted([*range(N_SAMPLES)] * EPOCHS)
    assert not told + other


def of_epochs(of_ranks: list[Any]) -> list[list[int]]:
    """Return the samples that all ranks together trained with, by epoch."""
    found = []
    n_steps = N_SAMPLES // BATCH
    assert {len(steps) for steps, _ in of_ranks} == {n_steps * len(of_ranks[0][0]) // n_steps}
    for start in range(0, len(of_ranks[0][0]), n_steps):
        found.append([sample for steps, _ in of_ranks for sample in flat(steps[start : start + n_steps])])
    return found


PASSES = pytest.mark.skipif(
    KERAS < (3, 7), reason="Keras 2 begins each epoch with the first batch; Keras 3.5 and 3.6 end with the first pass"
)
PARTS = [
    pytest.param("every so many", marks=pytest.mark.slow),
    pytest.param("by hand", marks=pytest.mark.slow),
    "global batches",
    "looked at",
    pytest.param("fewer steps", marks=PASSES),
    pytest.param("a shard", marks=DATASETS),
]


@pytest.mark.parametrize("which", PARTS)
def test_ranks_share_the_data(two: Ranks, which: str) -> None:
    """All of it in each pass, and each sample once."""
    of_ranks = two.run(samples, which)
    epochs = of_epochs(of_ranks)
    assert len(epochs) == EPOCHS
    for seen in epochs:
        assert sorted(seen) == list(range(N_SAMPLES))
    assert not any(told for _, told in of_ranks)
    if which in ("global batches", "looked at", "fewer steps"):
        assert epochs[0] != epochs[1]


def test_a_rank_that_looks_at_the_first_batch_has_the_same_orders(two: Ranks) -> None:
    def passes() -> list[tuple[int, list[int]]]:
        import ciranda.keras as hvd

        batches = hvd.GlobalBatches(np.arange(24), batch_size=4, shuffle=True)
        found = []

        def look() -> None:
            if hvd.rank() == 0:
                batches[0]

        for n_steps, ends in [(6, True), (6, True), (1, True), (1, True), (2, True), (2, False), (6, False), (6, True)]:
            look()
            mine = [sample for step in range(n_steps) for sample in batches[step][0].tolist()]
            found.append((batches.epoch, mine))
            if n_steps < 6:
                look()
            if ends:
                batches.on_epoch_end()
            look()
        return found

    for number, ((epoch, one), (other_epoch, other)) in enumerate(zip(*two.run(passes), strict=True)):
        assert epoch == other_epoch == number
        assert not set(one) & set(other)
