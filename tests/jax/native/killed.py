"""The last rank dies in the middle of its work: every other one raises an error that names it."""

from __future__ import annotations

import os
import signal

import jax
import numpy as np

jax.distributed.initialize()
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

try:
    from jax import shard_map
except ImportError:  # before 0.6
    from jax.experimental.shard_map import shard_map

mesh = Mesh(np.array(jax.devices()), ("i",))
N, RANK = jax.process_count(), jax.process_index()
add = jax.jit(shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
x = jax.make_array_from_callback((N, 100), NamedSharding(mesh, P("i")), lambda index: np.ones((1, 100), np.float32))
try:
    for step in range(1_000_000):
        if step == 10 and RANK == N - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        add(x).block_until_ready()
except (RuntimeError, ValueError) as error:
    print(f"raised: {error}", flush=True)
    os._exit(3)
