"""A script for Horovod, unmodified but for its faults: a compiled step, and a state of variables."""

import elastic_jobs
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
tf.keras.utils.set_random_seed(1)
x, y = elastic_jobs.digits()
layers = [tf.keras.layers.Input((64,)), tf.keras.layers.Dense(16, "tanh"), tf.keras.layers.Dense(10)]
model = tf.keras.Sequential(layers)
optimizer = tf.keras.optimizers.SGD(0.5, momentum=0.9)
optimizer.build(model.trainable_variables)


@tf.function
def train_one_batch(data, target):
    with tf.GradientTape() as tape:
        logits = model(data, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while elastic_jobs.must_wait(state.step, hvd.size()):
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size())
        train_one_batch(tf.constant(x[mine]), tf.constant(y[mine]))
        state.rows = state.rows + sorted(hvd.allgather(tf.constant(mine), name="rows").numpy().tolist())
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
elastic_jobs.report(hvd.rank(), hvd.size(), model.get_weights(), state.rows, model(x).numpy())
