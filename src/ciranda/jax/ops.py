"""The collectives on JAX arrays, outside jit and inside.

`tensor` is an array, or anything that `jax.numpy.asarray` takes, on one CPU device. The kind of value decides when the
call is made. Concrete values are communicated at once, and an error is one of `ciranda.errors`. Traced values, and any
value while a program is traced, become a call of the compiled program, which is made whenever the program runs; an
error is then a `jax.errors.JaxRuntimeError` with the same message. In a program, independent calls run concurrently, in
any order on each rank.

`name` identifies the call across ranks: all ranks must use the same one. A traced call without a name is named after
the compiled function and its position; outside jit, calls without names must be made in the same order on all ranks. A
name may be used again for the next step, or in a loop; if it occurs several times in a program, the later calls get a
number as suffix.

Inside jit shapes are known beforehand: every rank contributes the same number of rows to allgather, and alltoall sends
equal parts. The functions with _async, and reduce, gather, scatter and scan, are for values outside jit. `grouped_`
functions take a list, or any other pytree, and return the same; those for values outside jit take lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ciranda import _ops
from ciranda._collectives import Adapter, CompressedCollectives
from ciranda.jax import arrays
from ciranda.jax._primitive import Call, collective_p
from ciranda.jax._tracing import Tracing
from ciranda.jax.arrays import ArrayLike, Splits
from ciranda.process_sets import ProcessSet, global_process_set, id_of

_ADAPTER: Adapter[ArrayLike, jax.Array, Splits] = Adapter(
    module=__name__,
    types={"Given": "ArrayLike", "Tensor": "jax.Array", "Splits": "Splits"},
    namespace={"jax": jax, "ArrayLike": ArrayLike, "Splits": Splits},
    readable=arrays.readable,
    writable=arrays.writable,
    for_engine=arrays.for_engine,
    like=arrays.new_like,
    bring_back=lambda work, tensor: work,
    from_engine=arrays.from_engine,
    share_memory=arrays.share_memory,
    splits=np.asarray,
    counts=arrays.counts,
    gradients=Tracing(),
)
collectives: CompressedCollectives[ArrayLike, jax.Array, Splits] = CompressedCollectives(_ADAPTER)


def _of_tree(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a list of tensors as one of a pytree of them."""

    def of_tree(tensors: Any, *arguments: Any, **options: Any) -> Any:
        leaves, structure = jax.tree_util.tree_flatten(tensors)
        if not leaves:
            return tensors
        return jax.tree_util.tree_unflatten(structure, function(leaves, *arguments, **options))

    of_tree.__name__ = of_tree.__qualname__ = function.__name__
    of_tree.__doc__ = (
        f"{function.__doc__}\n\n`tensors` is a list or any other pytree, of which the result is another. What has an "
        "entry for each tensor has them in the order of its leaves."
    )
    of_tree.__module__ = __name__
    of_tree.__annotations__ = {**function.__annotations__, "tensors": "Any", "return": "Any"}
    return of_tree


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank of the process set has called this.

    While a function is traced it becomes a part of the program, which completes when all ranks have reached it; the
    rest of the program neither waits for it nor delays it.
    """
    collective_p.bind(call=Call(_ops.BARRIER, process_set=id_of(process_set)))


allreduce = collectives.allreduce
allreduce_async = collectives.allreduce_async
grouped_allreduce = _of_tree(collectives.grouped_allreduce)
grouped_allreduce_async = collectives.grouped_allreduce_async
allgather = collectives.allgather
allgather_async = collectives.allgather_async
grouped_allgather = _of_tree(collectives.grouped_allgather)
grouped_allgather_async = collectives.grouped_allgather_async
broadcast = collectives.broadcast
broadcast_async = collectives.broadcast_async
grouped_broadcast = _of_tree(collectives.grouped_broadcast)
grouped_broadcast_async = collectives.grouped_broadcast_async
reducescatter = collectives.reducescatter
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter = _of_tree(collectives.grouped_reducescatter)
grouped_reducescatter_async = collectives.grouped_reducescatter_async
alltoall = collectives.alltoall
alltoall_async = collectives.alltoall_async
grouped_alltoall = _of_tree(collectives.grouped_alltoall)
grouped_alltoall_async = collectives.grouped_alltoall_async
reduce = collectives.reduce
reduce_async = collectives.reduce_async
grouped_reduce = collectives.grouped_reduce
grouped_reduce_async = collectives.grouped_reduce_async
gather = collectives.gather
gather_async = collectives.gather_async
grouped_gather = collectives.grouped_gather
grouped_gather_async = collectives.grouped_gather_async
scatter = collectives.scatter
scatter_async = collectives.scatter_async
grouped_scatter = collectives.grouped_scatter
grouped_scatter_async = collectives.grouped_scatter_async
scan = collectives.scan
scan_async = collectives.scan_async
grouped_scan = collectives.grouped_scan
grouped_scan_async = collectives.grouped_scan_async
