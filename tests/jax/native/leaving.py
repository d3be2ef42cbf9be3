"""A rank that has joined before JAX came ends by itself: the other raises, and does not wait for JAX's coordinator."""

from __future__ import annotations

import ciranda

ciranda.init()

import jax  # noqa: E402
import numpy as np  # noqa: E402

jax.distributed.initialize()
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("i",))
x = jax.make_array_from_callback((2,), NamedSharding(mesh, P("i")), lambda index: np.ones(1, np.float32))
add = jax.jit(lambda rows: rows.sum(), out_shardings=NamedSharding(mesh, P()))
for step in range(10):
    if step == 5 and jax.process_index() == 1:
        raise SystemExit(1)
    try:
        add(x).block_until_ready()
    except (RuntimeError, ValueError) as error:
        print("raised", error, flush=True)
        break
