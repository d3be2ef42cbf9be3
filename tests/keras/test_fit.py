"""`fit()` on several ranks equals one process on the same global batches, in every mode of the backend."""

from __future__ import annotations

from typing import Any

import pytest
from fitting import MODES, Plan, alone, assert_close, data, together
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

ADAM = {"optimizer": "Adam", "settings": {"learning_rate": 0.01}}


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("which", [{}, pytest.param(ADAM, marks=pytest.mark.slow)], ids=["sgd", "adam"])
def test_fit_equals_one_process(world: Ranks, mode: str, which: dict[str, Any]) -> None:
    plan = Plan(mode=mode, **which)
    expected = alone(plan)
    for weights in world.run(together, plan):
        assert_close(weights, expected)


def test_without_combining_it_does_not(two: Ranks) -> None:
    """What the tests above would see, were nothing combined."""

    def separately(plan: Plan) -> list[Any]:
        import ciranda.keras as hvd

        hvd.DistributedOptimizer = lambda optimizer: optimizer
        try:
            return together(plan)
        finally:
            from ciranda.keras.wrapping import DistributedOptimizer

            hvd.DistributedOptimizer = DistributedOptimizer

    plan = Plan()
    expected = alone(plan)
    with pytest.raises(AssertionError):
        assert_close(two.run(separately, plan)[1], expected)


def test_each_rank_gets_its_share_of_every_batch(world: Ranks) -> None:
    def shares() -> list[tuple[list[float], list[float]]]:
        import numpy as np

        import ciranda.keras as hvd

        x, _ = data()
        batches = hvd.GlobalBatches(np.arange(len(x)), np.zeros(len(x)), batch_size=16, shuffle=True, seed=5)
        found = []
        for _ in range(2):
            for index in range(len(batches)):
                samples, _, weights = batches[index] if len(batches[index]) == 3 else (*batches[index], None)
                found.append((samples.tolist(), [1.0] * len(samples) if weights is None else weights.tolist()))
            batches.on_epoch_end()
        for index in (-1, len(batches)):
            with pytest.raises(IndexError, match="there is no batch"):
                batches[index]
        return found

    of_ranks = world.run(shares)
    n_batches = len(of_ranks[0])
    orders = []
    for epoch in range(2):
        seen = []
        for number in range(epoch * n_batches // 2, (epoch + 1) * n_batches // 2):
            whole = [pair for share in of_ranks for pair in zip(*share[number], strict=True)]
            counted = [sample for sample, weight in whole if weight > 0]
            seen += counted
            # The mean of the ranks' means is the mean of all.
            for share in of_ranks:
                _, weights = share[number]
                for weight in weights:
                    assert weight / len(weights) / world.n_ranks == pytest.approx((weight > 0) / len(counted))
        assert sorted(seen) == list(range(50))
        orders.append(seen)
    assert orders[0] != orders[1]


def test_an_order_of_its_own_is_refused(two: Ranks) -> None:
    def shuffled() -> None:
        from fitting import BATCH, make_model

        import ciranda.keras as hvd

        x, y = data()
        model = make_model(0)
        model.compile("sgd", "mse")
        model.fit(hvd.GlobalBatches(x, y, batch_size=BATCH // 4), epochs=3, verbose=0)

    for error in two.errors(shuffled):
        assert "pass shuffle=False to fit()" in str(error)


def test_values_of_all_ranks(two: Ranks) -> None:
    def functions() -> list[Any]:
        import keras
        import numpy as np
        from fitting import IS_KERAS_3

        import ciranda.keras as hvd

        own = hvd.rank() + 1.0
        if IS_KERAS_3:
            half = hvd.allreduce(keras.ops.full((3,), own, "bfloat16"))
            assert (half.dtype.name, half.astype(float).tolist()) == ("bfloat16", [1.5] * 3)
        return [
            float(hvd.allreduce(own)),
            float(hvd.allreduce(own, op=hvd.Sum, compression=hvd.Compression.fp16)),
            hvd.allgather(np.full(hvd.rank() + 1, own)).tolist(),
            float(hvd.broadcast(own, 1)),
            hvd.reducescatter(np.arange(4) * own, op=hvd.Sum).tolist(),
        ]

    first, second = two.run(functions)
    assert first == [1.5, 3.0, [1.0, 2.0, 2.0], 2.0, [0.0, 3.0]]
    assert second == [1.5, 3.0, [1.0, 2.0, 2.0], 2.0, [6.0, 9.0]]
