"""A script for Horovod, unmodified but for its fault: a compiled step, and a state of variables."""

import elastic_jobs
import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
tf.keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(elastic_jobs.N_STEPS * elastic_jobs.BATCH, 4)).astype(np.float32)
y = x.sum(axis=1, keepdims=True)
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
optimizer.build(model.trainable_variables)


@tf.function
def train_one_batch(data, target):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(data, training=True) - target))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while state.step == elastic_jobs.WAITING_STEP and 1 < hvd.size() < 3:
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size())
        train_one_batch(tf.constant(x[mine]), tf.constant(y[mine]))
        state.rows = state.rows + sorted(int(row) for row in hvd.allgather(tf.constant(mine), name="rows"))
        state.step += 1
        state.commit()


def on_reset():
    resets.append(hvd.size())


resets = []
variables = [*model.variables, *optimizer.variables]
variables = [each if isinstance(each, tf.Variable) else each.value for each in variables]  # of Keras 3
state = hvd.elastic.TensorFlowState(variables, step=0, rows=[])
state.register_reset_callbacks([on_reset])
train(state)
assert resets[-1:] in ([], [hvd.size()])
elastic_jobs.report(hvd.rank(), hvd.size(), model.get_weights(), state.rows)
