"""Two threads of one process: one calls ciranda on NumPy arrays, the other JAX; both share the world."""

from __future__ import annotations

import sys
import threading

import numpy as np

if sys.argv[1] == "before":
    import ciranda

    ciranda.init()

import jax

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
x = jax.make_array_from_callback(
    (N, 100), NamedSharding(mesh, P("i")), lambda index: np.full((1, 100), RANK + 1, np.float32)
)
add(x).block_until_ready()

import ciranda  # noqa: E402

ciranda.init()  # finds the world that is there
assert (ciranda.rank(), ciranda.size()) == (RANK, N)
failures: list[BaseException] = []


def call_numpy() -> None:
    try:
        for step in range(300):
            got = ciranda.allreduce(np.full(50, RANK + step, np.int64), op=ciranda.Sum, name=f"by hand {step % 3}")
            assert (got == sum(range(N)) + N * step).all()
    except BaseException as error:
        failures.append(error)


thread = threading.Thread(target=call_numpy)
thread.start()
for _ in range(300):
    assert (np.asarray(add(x).addressable_data(0)) == N * (N + 1) / 2).all()
thread.join()
if failures:
    raise failures[0]

# What both stand on goes and comes back.
ciranda.shutdown()
try:
    add(x).block_until_ready()
except (RuntimeError, ValueError) as error:  # JAX raises both
    assert "Ciranda has not been initialized" in str(error), error
else:
    raise AssertionError("a collective without a world")
ciranda.init()
assert (np.asarray(add(x).addressable_data(0)) == N * (N + 1) / 2).all()
print("shared", flush=True)
