"""A step of data-parallel training by sharded jit, on all ranks and on one device, must give the same parameters."""

from __future__ import annotations

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.distributed.initialize()

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

N = jax.process_count()
MESH = Mesh(np.array(jax.devices()), ("batch",))
ROWS, STEPS = 12 * N, 20

random = np.random.default_rng(7)
inputs = random.standard_normal((STEPS, ROWS, 5))
targets = random.standard_normal((STEPS, ROWS, 1))
parameters = [random.standard_normal(shape) / 3 for shape in ((5, 16), (16,), (16, 1), (1,))]


def loss(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ weights[0] + weights[1])
    return jnp.mean((hidden @ weights[2] + weights[3] - y) ** 2)


def step(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> list[jax.Array]:
    return [weight - 0.1 * gradient for weight, gradient in zip(weights, jax.grad(loss)(weights, x, y), strict=True)]


def placed(array: np.ndarray, spec: P) -> jax.Array:
    return jax.make_array_from_callback(array.shape, NamedSharding(MESH, spec), lambda index: array[index])


spread = jax.jit(step, out_shardings=NamedSharding(MESH, P()))
alone = jax.jit(step)
together = [placed(weight, P()) for weight in parameters]
here = [jnp.asarray(weight) for weight in parameters]
for x, y in zip(inputs, targets, strict=True):
    together = spread(together, placed(x, P("batch")), placed(y, P("batch")))
    here = alone(here, x, y)
for one, other in zip(together, here, strict=True):
    np.testing.assert_allclose(one.addressable_data(0), other, rtol=1e-12, atol=1e-14)
assert not np.allclose(parameters[0], here[0])
print("equal", N, flush=True)
