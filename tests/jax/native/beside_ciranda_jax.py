"""JAX's own collectives and those of ciranda.jax, in one process."""

from __future__ import annotations

import jax
import numpy as np

jax.distributed.initialize()

from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import ciranda.jax  # noqa: E402

try:
    from jax import shard_map
except ImportError:  # before 0.6
    from jax.experimental.shard_map import shard_map

mesh = Mesh(np.array(jax.devices()), ("i",))
N, RANK = jax.process_count(), jax.process_index()
x = jax.make_array_from_callback(
    (N, 100), NamedSharding(mesh, P("i")), lambda index: np.full((1, 100), RANK + 1, np.float32)
)
add = jax.jit(shard_map(lambda row: lax.psum(row, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
ciranda.jax.init()
by_name = jax.jit(lambda row: ciranda.jax.allreduce(row, op=ciranda.jax.Sum, name="by name"))
total = N * (N + 1) / 2
for _ in range(100):
    local = jax.device_put(np.full(7, RANK + 1, np.float32), jax.local_devices()[0])
    one, other = add(x), by_name(local)
    assert (np.asarray(one.addressable_data(0)) == total).all()
    assert (np.asarray(other) == total).all()
print("shared", flush=True)
