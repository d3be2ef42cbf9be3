"""The counters of all ranks in what Keras logs: ciranda run -np 2 python examples/loggers/with_keras.py DIR."""

import sys

import keras
import numpy as np

import ciranda.keras as hvd
from ciranda import metrics


class Counters(keras.callbacks.Callback):
    """Stands before the callback that logs."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        logs.update(metrics.over_ranks())  # every rank


hvd.init()
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Counters()]
if hvd.rank() == 0:
    callbacks += [keras.callbacks.CSVLogger(f"{sys.argv[1]}/log.csv"), keras.callbacks.TensorBoard(sys.argv[1])]
model.fit(np.full((64, 8), 1 + 0.1 * hvd.rank()), np.ones((64, 1)), epochs=2, verbose=0, callbacks=callbacks)
