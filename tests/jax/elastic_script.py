"""Training in JAX with a compiled step whose gradients are combined inside the program; its rank 0 is killed once."""

import elastic_jobs
import jax
import jax.numpy as jnp
import numpy as np

import ciranda.jax as hvd

hvd.init()
x = np.random.default_rng(1).normal(size=(elastic_jobs.N_STEPS * elastic_jobs.BATCH, 4)).astype(np.float32)
y = x.sum(axis=1)


@jax.jit
def step_of(params, data, target):
    gradient = jax.grad(lambda w: jnp.mean((jnp.tanh(data @ w["hidden"]) @ w["out"] - target) ** 2))(params)
    gradient = {name: hvd.allreduce(gradient[name], name=name) for name in sorted(gradient)}
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, params, gradient)


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while state.step == elastic_jobs.WAITING_STEP and 1 < hvd.size() < 3:
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = jnp.array(elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size()))
        state.params = step_of(state.params, x[mine], y[mine])
        state.rows = state.rows + sorted(int(row) for row in hvd.allgather(mine, name="rows"))
        state.step += 1
        state.commit()


keys = jax.random.split(jax.random.key(hvd.rank() if hvd.size() > 1 else 0))
params = {"hidden": jax.random.normal(keys[0], (4, 8)) / 2, "out": jax.random.normal(keys[1], (8,)) / 2}
state = hvd.elastic.JaxState(params=params, step=0, rows=[])
train(state)
elastic_jobs.report(hvd.rank(), hvd.size(), [np.asarray(each) for each in jax.tree.leaves(state.params)], state.rows)
