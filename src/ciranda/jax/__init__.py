"""Ciranda for JAX: collectives inside and outside `jit`, and a distributed optimizer for optax.

For example:

    import ciranda.jax as hvd

    hvd.init()
    optimizer = hvd.distributed(optax.adam(1e-3))
    params = hvd.broadcast_parameters(params)

    @jax.jit
    def step(params, state, batch):
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(loss)
"""

# ruff: noqa: E402 (require() reports a missing JAX before the imports)

from typing import TYPE_CHECKING

from ciranda._frameworks import require

require("jax", __name__)

from ciranda.jax import _versions

_versions.check()

from ciranda._frameworks import common as _common
from ciranda._frameworks import with_handles as _with_handles
from ciranda._frameworks.common import *
from ciranda._frameworks.with_handles import *
from ciranda._ops import barrier_async as barrier_async
from ciranda.jax import elastic as elastic
from ciranda.jax import functions, ops
from ciranda.jax._jax_collectives import barrier as barrier
from ciranda.jax.compression import Compression as Compression
from ciranda.jax.compression import Compressor as Compressor
from ciranda.jax.functions import *
from ciranda.jax.ops import *
from ciranda.jax.optimizer import distributed as distributed

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *_common.__all__,
        *_with_handles.__all__,
        *functions.__all__,
        *ops.__all__,
        "Compression",
        "Compressor",
        "barrier",
        "barrier_async",
        "distributed",
        "elastic",
    ]
