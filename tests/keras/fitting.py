"""Training with `fit()`: the same by one process on whole batches, and by n ranks on their shares of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import pytest

KERAS = tuple(int(part) for part in keras.__version__.split(".")[:2])
IS_KERAS_3 = KERAS >= (3,)
BACKEND = keras.backend.backend() if IS_KERAS_3 else "tensorflow"
#: Arguments of compile(): every way in which the backend makes a step.
MODES: dict[str, dict[str, Any]] = {
    "tensorflow": {
        "eager": {"run_eagerly": True},
        "graph": {"jit_compile": False},
        "xla": {"jit_compile": True},
    },
    "jax": {"eager": {"run_eagerly": True}, "jit": {"jit_compile": True}},
    "torch": {"eager": {}},
}[BACKEND]
GRAPH = next(reversed(MODES)) if BACKEND != "tensorflow" else "graph"
#: The same for tests of what does not depend on it.
SOME_MODES = [mode if mode == GRAPH else pytest.param(mode, marks=pytest.mark.slow) for mode in MODES]
BATCH = 16
#: The last batch has 2 samples: of three ranks, one has none.
N_SAMPLES = 50


@dataclass
class Plan:
    """What to train, and how: everything but who does it."""

    optimizer: str = "SGD"
    settings: dict[str, Any] = field(default_factory=lambda: {"learning_rate": 0.1, "momentum": 0.9})
    #: For DistributedOptimizer.
    options: dict[str, Any] = field(default_factory=dict)
    mode: str = GRAPH
    epochs: int = 2
    n_samples: int = N_SAMPLES
    seed: int = 0


def data(n_samples: int = N_SAMPLES) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(n_samples, 5)).astype(np.float32)
    return x, np.tanh(x @ generator.normal(size=(5, 3))).astype(np.float32)


def make_model(seed: int) -> Any:
    """A model whose weights are those of `seed`."""
    layers = [keras.layers.Dense(8, activation="tanh", name="first"), keras.layers.Dense(3, name="last")]
    model = keras.Sequential([keras.Input((5,)), *layers] if IS_KERAS_3 else [keras.layers.InputLayer((5,)), *layers])
    generator = np.random.default_rng(seed)
    model.set_weights([generator.normal(size=weight.shape) * 0.5 for weight in model.get_weights()])
    return model


def make_optimizer(plan: Plan) -> Any:
    return getattr(keras.optimizers, plan.optimizer)(**plan.settings)


def value_of(variable: Any) -> float:
    return float(np.array(keras.ops.convert_to_numpy(variable) if IS_KERAS_3 else variable.numpy()))


def tensors_of(arrays: list[Any]) -> list[Any]:
    if IS_KERAS_3:
        return [keras.ops.convert_to_tensor(array) for array in arrays]
    import tensorflow as tf

    return [tf.constant(array) for array in arrays]


def weights_of(model: Any) -> list[Any]:
    return [np.array(weight, np.float64) for weight in model.get_weights()]


def alone(plan: Plan) -> list[Any]:
    """Train by this process alone; return the weights. What was trained before is not trained again."""
    known = repr(replace(plan, options={}))
    if known not in _KNOWN:
        _KNOWN[known] = _trained_alone(plan)
    return _KNOWN[known]


_KNOWN: dict[str, list[Any]] = {}


def _trained_alone(plan: Plan) -> list[Any]:
    x, y = data(plan.n_samples)
    model = make_model(plan.seed)
    model.compile(make_optimizer(plan), "mse", **MODES[plan.mode])
    model.fit(x, y, batch_size=BATCH, shuffle=False, epochs=plan.epochs, verbose=0)
    return weights_of(model)


def together(plan: Plan) -> list[Any]:
    """Train by this rank, which begins with weights of its own but for rank 0; return the weights."""
    import ciranda.keras as hvd

    x, y = data(plan.n_samples)
    model = make_model(plan.seed + hvd.rank())
    optimizer = hvd.DistributedOptimizer(make_optimizer(plan), **plan.options)
    model.compile(optimizer, "mse", **MODES[plan.mode])
    batches = hvd.GlobalBatches(x, y, batch_size=BATCH)
    start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(batches, shuffle=False, epochs=plan.epochs, verbose=0, callbacks=start)
    return weights_of(model)


def assert_close(got: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
