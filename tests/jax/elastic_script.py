"""Training in JAX with a compiled step whose gradients are combined inside the program; its rank 0 is killed twice."""

import elastic_jobs
import jax
import jax.numpy as jnp
import numpy as np

import ciranda.jax as hvd

hvd.init()
x, y = elastic_jobs.digits()


def logits_of(params, images):
    return jnp.tanh(images @ params["hidden"]) @ params["out"]


def loss_of(params, images, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits_of(params, images)), labels[:, None], axis=1))


@jax.jit
def step_of(params, images, labels):
    gradient = jax.grad(loss_of)(params, images, labels)
    gradient = {name: hvd.allreduce(gradient[name], name=name) for name in sorted(gradient)}
    return jax.tree.map(lambda weight, slope: weight - slope, params, gradient)


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while elastic_jobs.must_wait(state.step, hvd.size()):
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = jnp.array(elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size()))
        state.params = step_of(state.params, x[mine], y[mine])
        state.rows = state.rows + sorted(np.asarray(hvd.allgather(mine, name="rows")).tolist())
        state.step += 1
        state.commit()


keys = jax.random.split(jax.random.key(hvd.rank() if hvd.size() > 1 else 0))
params = {"hidden": jax.random.normal(keys[0], (64, 16)) / 8, "out": jax.random.normal(keys[1], (16, 10)) / 4}
state = hvd.elastic.JaxState(params=params, step=0, rows=[])
train(state)
weights = [np.asarray(each) for each in jax.tree.leaves(state.params)]
elastic_jobs.report(hvd.rank(), hvd.size(), weights, state.rows, np.asarray(logits_of(state.params, x)))
