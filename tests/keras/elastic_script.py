"""A script for Horovod, unmodified but for its faults: `fit()` with the callbacks of an elastic state.

As in Horovod's example, a step before training makes all variables.
"""

import elastic_jobs
import keras
import numpy as np

is_on_tensorflow = keras.backend.backend() == "tensorflow"
if is_on_tensorflow:
    import horovod.keras as hvd
else:
    import ciranda.keras as hvd

hvd.init()
keras.utils.set_random_seed(1)
x, y = elastic_jobs.digits()
layers = [keras.layers.Dense(16, "tanh"), keras.layers.Dense(10)]
model = keras.Sequential(layers if is_on_tensorflow else [keras.layers.InputLayer((64,)), *layers])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.9))
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
if is_on_tensorflow:
    model.fit(x[:16], y[:16], steps_per_epoch=1, epochs=1, callbacks=None, verbose=0)


class Die(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        elastic_jobs.maybe_die(state.epoch, hvd.rank(), hvd.size())


class Account(keras.callbacks.Callback):
    """Notes the rows of an epoch before it is committed."""

    def on_epoch_end(self, epoch, logs=None):
        state.rows = state.rows + sorted(
            int(row) for row in np.asarray(hvd.allgather(np.array(self.mine), name="rows"))
        )


@hvd.elastic.run
def train(state):
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        Account(),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
        Die(),
    ]
    while state.epoch < elastic_jobs.N_STEPS:
        while elastic_jobs.must_wait(state.epoch, hvd.size()):
            state.commit()
        mine = callbacks[2].mine = elastic_jobs.batch_of(state.epoch, hvd.rank(), hvd.size())
        model.fit(x[mine], y[mine], batch_size=len(mine), shuffle=False, epochs=1, verbose=0, callbacks=callbacks)


state = hvd.elastic.KerasState(model, epoch=0, batch=0, rows=[])
train(state)
elastic_jobs.report(hvd.rank(), hvd.size(), model.get_weights(), state.rows, model.predict(x, verbose=0))
