"""Training with `fit()` that begins again from its last commit ends like training that never failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import elastic_jobs
import pytest
from fitting import BACKEND, GRAPH, MODES, SOME_MODES, assert_close
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def train(failing_step: int | None, mode: str) -> tuple[list[Any], dict[str, Any]]:
    """Four epochs of two steps, committed after each; in the middle of one the last rank leaves, once."""
    import keras
    from fitting import data, make_model, weights_of

    import ciranda.keras as hvd
    from ciranda.errors import AbortedError

    x, y = data(32)
    model = make_model(hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "mse", **MODES[mode])
    log: dict[str, Any] = {"calls": 0, "epochs": [], "batches": []}
    left = [failing_step]

    class Leave(keras.callbacks.Callback):
        steps = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if self.steps == left[0] and hvd.rank() == hvd.size() - 1:
                left[0] = None
                hvd.shutdown()
                raise AbortedError("this rank has had enough")
            self.steps += 1

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            log["batches"].append(state.batch)

    leave = Leave()

    @hvd.elastic.run
    def fit(state: Any) -> str:
        log["calls"] += 1
        log["epochs"].append(state.epoch)
        callbacks = [
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=1000),
            leave,
        ]
        batches = hvd.GlobalBatches(x, y, batch_size=16)
        model.fit(batches, shuffle=False, epochs=4 - state.epoch, verbose=0, callbacks=callbacks)
        return "done"

    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    assert fit(state) == "done"
    assert (state.epoch, state.batch) == (4, 0)
    return weights_of(model), log


@pytest.mark.parametrize("mode", SOME_MODES)
def test_after_a_failure_like_without(two: Ranks, mode: str) -> None:
    expected, log = two.run(train, None, mode)[0]
    assert log == {"calls": 1, "epochs": [0], "batches": [0, 1] * 4}
    for weights, log in two.run(train, 5, mode):
        assert log["calls"] == 2
        assert log["epochs"] == [0, 2]
        if BACKEND != "jax":  # whose steps are dispatched ahead
            assert log["batches"] == [0, 1, 0, 1, 0, 0, 1, 0, 1]
        assert_close(weights, expected, 1e-6)


def _restored() -> list[list[float]]:
    """The values of two variables, of which one was created since they were saved, and has come to nothing."""
    import keras
    import numpy as np

    from ciranda.keras import values
    from ciranda.keras.elastic import OptimizerHandler

    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.build((None, 2))
    handler = OptimizerHandler(optimizer)
    handler.save()
    optimizer.build(model.trainable_variables)
    created = [each for each in values.variables_of(optimizer) if tuple(each.shape) == (2, 1)]
    values.assign(created, [np.full((2, 1), np.nan, np.float32)] * len(created))
    handler.restore()
    return [each.ravel().tolist() for each in values.values_of(created)]


def test_variables_of_later_are_zeros_again(two: Ranks) -> None:
    for found in two.run(_restored):
        assert found == [[0.0, 0.0]]


def test_a_killed_rank_is_named_to_the_others(three: Ranks) -> None:
    def fit() -> str:
        import os
        import signal

        import keras
        from fitting import data, make_model

        import ciranda.keras as hvd
        from ciranda.errors import HorovodInternalError

        x, y = data(48)
        model = make_model(0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", **MODES[GRAPH])

        class Die(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 1 and hvd.rank() == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

        from ciranda.keras.backends import as_ciranda_error

        try:
            model.fit(hvd.GlobalBatches(x, y, batch_size=16), shuffle=False, verbose=0, callbacks=[Die()])
            model.get_weights()  # JAX tells of errors when a result is asked for
        except Exception as error:
            assert isinstance(as_ciranda_error(error), HorovodInternalError)  # noqa: PT017
            return str(error)
        raise AssertionError("fit() went on without rank 2")

    for rank in range(3):
        three.start(rank, fit)
    three.is_broken = True
    for rank in range(2):
        outcome = three.outcome(rank)
        assert outcome.error is None, outcome.traceback
        assert "2" in outcome.value


def test_a_killed_rank_of_a_job_is_replaced(tmp_path: Path) -> None:
    elastic_jobs.check(Path(__file__).with_name("elastic_script.py"), tmp_path)
