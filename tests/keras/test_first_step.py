"""Ranks whose models differ, in every mode of the backend: told in the second step, or equalized by the callback."""

from __future__ import annotations

import pytest
from fitting import MODES
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

TOLD = "do not begin with the same parameters; call broadcast_variables"


def _fit(mode: str, has_callback: bool, module: str = "ciranda.keras") -> tuple[str, list[str]]:
    """Fit a model whose first layer has other weights on each rank."""
    import importlib
    import warnings

    import keras
    import numpy as np

    hvd = importlib.import_module(module)
    callbacks = importlib.import_module(f"{module}.callbacks")
    from ciranda.keras import backends

    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    model.build((None, 2))
    model.set_weights([np.full(each.shape, 1.0 + hvd.rank() * (each.shape == (2, 3))) for each in model.get_weights()])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", **MODES[mode])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(
                np.ones((16, 2), np.float32),
                np.ones((16, 1), np.float32),
                batch_size=2,
                verbose=0,
                callbacks=[callbacks.BroadcastGlobalVariablesCallback(0)] if has_callback else [],
            )
        except Exception as error:
            return str(backends.as_ciranda_error(error) or error), []
    return "", [str(each.message) for each in caught if TOLD in str(each.message)]


@pytest.mark.parametrize("mode", list(MODES))
def test_a_forgotten_broadcast(two: Ranks, mode: str) -> None:
    for problem, _ in two.run(_fit, mode, False):
        assert f"DistributedOptimizer: the ranks {TOLD}" in problem
        assert "kernel" in problem
        assert "(float32 [2, 3] here) has other bits on rank 1 than on rank 0" in problem
    assert two.run(_fit, mode, True) == [("", [])] * 2


def test_horovod_scripts_are_warned_once(two: Ranks) -> None:
    pytest.importorskip("horovod.keras")
    for problem, warned in two.run(_fit, next(iter(MODES)), False, "horovod.keras"):
        assert problem == ""
        assert len(warned) == 1
