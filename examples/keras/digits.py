"""Handwritten digits with Keras on several processes; and the proof that they train as one process does.

    KERAS_BACKEND=torch ciranda run -np 2 python examples/keras/digits.py

On any backend. Every process makes the same model, trains on its share of each batch, and then the whole by itself.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

import ciranda.keras as hvd

BATCH = 60
EPOCHS = 3


def load() -> tuple[Any, Any]:
    """The digits of scikit-learn, where it is there; else images that are as easy to tell apart."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        generator = np.random.default_rng(0)
        labels = generator.integers(0, 10, 1797)
        images = generator.normal(size=(10, 64))[labels] + generator.normal(size=(1797, 64))
        return images.astype("float32"), labels
    digits = load_digits()
    return (digits.data / 16).astype("float32"), digits.target


def make_model(optimizer: Any) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential([keras.layers.InputLayer((64,)), *layers])
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> int:
    hvd.init()
    x, y = load()
    together = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    batches = hvd.GlobalBatches(x, y, batch_size=BATCH)
    together.fit(batches, shuffle=False, epochs=EPOCHS, verbose=0, callbacks=callbacks)

    alone = make_model(keras.optimizers.SGD(0.1, momentum=0.9))
    alone.fit(x, y, batch_size=BATCH, shuffle=False, epochs=EPOCHS, verbose=0)
    pairs = zip(together.get_weights(), alone.get_weights(), strict=True)
    difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    accuracy = together.evaluate(x, y, verbose=0)[1]
    if hvd.rank() == 0:
        verdict = "same as one process" if difference < 1e-3 else "DIFFERENT from one process"
        print(f"on {hvd.size()} processes: {accuracy:.1%} right; {verdict} (weights within {difference:.1e})")
    return 0 if difference < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
