"""The collectives bound to JAX arrays, and what JAX has of its own among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ciranda import _ops
from ciranda._collectives import Adapter, CompressedCollectives
from ciranda._collectives.names import OF_TREES
from ciranda._frameworks import trace_me
from ciranda._spans import recorded_in
from ciranda.jax import arrays
from ciranda.jax._primitive import Call, collective_p
from ciranda.jax._tracing import Tracing
from ciranda.jax.arrays import ArrayLike, Splits
from ciranda.process_sets import ProcessSet, global_process_set, id_of

_ADAPTER: Adapter[ArrayLike, jax.Array, Splits] = Adapter(
    module="ciranda.jax.ops",
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

recorded_in(trace_me.sink(jax.profiler.TraceAnnotation, jax.profiler.TraceAnnotation.is_enabled))


def of_tree(function: Callable[..., Any]) -> Callable[..., Any]:
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
    of_tree.__module__ = function.__module__
    of_tree.__annotations__ = {**function.__annotations__, "tensors": "Any", "return": "Any"}
    return of_tree


def named(name: str) -> Callable[..., Any]:
    """Return the function that `ciranda.jax.ops` exports under a name."""
    function: Callable[..., Any] = getattr(collectives, name)
    return of_tree(function) if name in OF_TREES else function


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank of the process set has called this.

    While a function is traced it becomes a part of the program, which completes when all ranks have reached it; the
    rest of the program neither waits for it nor delays it.
    """
    collective_p.bind(call=Call(_ops.BARRIER, process_set=id_of(process_set)))


barrier.__module__ = _ADAPTER.module
