"""JAX's transformations of a collective: its derivatives, forward and reverse, and `vmap`.

Except for Min and Max, a collective with a derivative is linear: the tangent of the result is the same collective of
the tangents. The transposes are those of `ciranda._collectives.rules`, for the gradients of averaged losses. A compiled
program contains neither rank nor size, so steps of a rule that depend on them are one collective here: allgather's
gradient is a reducescatter, broadcast's a reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core
from jax.interpreters import ad, batching

from ciranda._ops import (
    ALLGATHER,
    ALLREDUCE,
    BROADCAST,
    REDUCE,
    REDUCESCATTER,
    Adasum,
    Average,
    Max,
    Min,
    Sum,
)
from ciranda.errors import NotSupportedError
from ciranda.jax import _eager, arrays
from ciranda.jax._primitive import Call, collective_p, size_p

#: Collectives that combine tensors element by element.
_ELEMENTWISE = (ALLREDUCE, BROADCAST, REDUCE)
_TANGENT = "tangent"

# Compiled, as it has a number in it: outside jit that would be a transfer, which `jax.transfer_guard()` may refuse.
_mean_of_chosen = jax.jit(lambda total, count: total / jnp.maximum(count, 1))


def _made(call: Call, tensors: Sequence[Any]) -> list[Any]:
    return list(collective_p.bind(*tensors, call=call))


def _of_gradient(call: Call) -> Call:
    """Return the gradient's call, named after the user's call. The transposed call has the name of the tangents."""
    name = None if call.name is None else f"{call.name.removesuffix(f'.{_TANGENT}')}.gradient"
    return call._replace(name=name, rows=None, received=None)


# --- forward


def _tangents(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    """Return the results, and the tangents of all inexact tensors, so that all ranks make the same call."""
    results = _made(call, primals)
    moving = [index for index, primal in enumerate(primals) if jnp.issubdtype(primal.dtype, jnp.inexact)]
    given = [ad.instantiate_zeros(tangents[index]) for index in moving]
    own = _only(call, moving, results, len(primals))
    if call.collective in (ALLREDUCE, REDUCESCATTER) and call.op not in (Average, Sum):
        found = _of_extremes(own, [primals[index] for index in moving], [results[index] for index in moving], given)
    else:
        found = _made(own, given)[: len(moving)]
    there = dict(zip(moving, found, strict=True))
    return results, [there[index] if index in there else _no_tangent(each) for index, each in enumerate(results)]


def _no_tangent(value: Any) -> Any:
    return ad.Zero(jax.core.ShapedArray(value.shape, jax.dtypes.float0))


def _only(call: Call, chosen: Sequence[int], results: Sequence[Any], n_tensors: int) -> Call:
    """Return the call that computes the tangents of the chosen tensors."""
    own = call._replace(name=call.named(_TANGENT))
    if call.rows is None and call.splits is None:
        return own
    own = own._replace(rows=tuple(results[index].shape[0] for index in chosen))
    if call.splits is None:
        return own
    counts = results[n_tensors:]
    if any(isinstance(each, jax.core.Tracer) for each in counts):  # in jit, where _lower() rejects splits
        return own._replace(splits=tuple(call.splits[index] for index in chosen))
    received = tuple(tuple(np.asarray(counts[index]).tolist()) for index in chosen)
    return own._replace(splits=tuple(call.splits[index] for index in chosen), received=received)


def _of_extremes(call: Call, primals: Sequence[Any], results: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Return the tangents of Min and Max: their mean over the ranks that have the selected element."""
    if call.collective == REDUCESCATTER:
        raise NotSupportedError("reducescatter has a gradient for op=Average and op=Sum only")
    if call.op not in (Min, Max):
        raise NotSupportedError(
            "allreduce has a gradient with op=Average, Sum, Min and Max only: jax.lax.stop_gradient() its tensor"
        )
    plain = call._replace(prescale=1.0, postscale=1.0)
    inner = results
    if (call.prescale, call.postscale) != (1.0, 1.0):
        # The factors may round the compared values or reverse their order: compare the unscaled ones.
        op = call.op if call.prescale >= 0 else Min + Max - call.op
        inner = _made(plain._replace(op=op, name=call.named("unscaled")), primals)
    chosen = [(mine == best).astype(mine.dtype) for mine, best in zip(primals, inner, strict=True)]
    counts = _made(plain._replace(op=Sum, name=call.named("chosen")), chosen)
    moved = [tangent * mine for tangent, mine in zip(tangents, chosen, strict=True)]
    totals = _made(call._replace(op=Sum), moved)
    return list(map(_mean_of_chosen, totals, counts))


ad.primitive_jvps[collective_p] = _tangents


# --- backward


def _transposed(gradients: Sequence[Any], *tensors: Any, call: Call) -> list[Any]:
    """Return the gradients of the tensors, given those of the results."""
    n = len(tensors)
    if all(isinstance(each, ad.Zero) for each in gradients[:n]):
        return [None] * n
    rows = [(each.aval if ad.is_undefined_primal(each) else each).shape[:1] for each in tensors]
    found = _gradients(call, [each[0] if each else 0 for each in rows], list(map(ad.instantiate_zeros, gradients[:n])))
    pairs = zip(found, tensors, strict=True)
    return [gradient if ad.is_undefined_primal(tensor) else None for gradient, tensor in pairs]


ad.primitive_transposes[collective_p] = _transposed


def _gradients(call: Call, rows: Sequence[int], gradients: Sequence[Any]) -> list[Any]:
    own = _of_gradient(call)
    average = own._replace(op=Average, prescale=1.0, postscale=1.0)
    if call.collective == ALLGATHER:
        return _of_allgather(average, rows, gradients)
    if call.collective == BROADCAST:
        return _made(average._replace(collective=REDUCE), gradients)
    if call.collective == REDUCESCATTER:
        return _of_reducescatter(own, rows, gradients)
    if call.collective == REDUCE:
        # The transpose of broadcast's gradient: the root's gradient over the number of ranks.
        parts = _made(own._replace(collective=BROADCAST, op=Sum), gradients)
        return [part / arrays.cast(_size(call), part.dtype) for part in parts]
    if call.splits is not None:  # rows return to the ranks that sent them
        return _made(own._replace(splits=call.received, rows=tuple(rows)), gradients)[: len(gradients)]
    return _made(own, gradients)


def _of_allgather(call: Call, rows: Sequence[int], gradients: Sequence[Any]) -> list[Any]:
    if core.trace_state_clean() and not any(isinstance(each, jax.core.Tracer) for each in gradients):
        # Outside jit, the number of rows may differ between ranks.
        reduced = _made(call._replace(collective=ALLREDUCE), gradients)
        begins = _eager.rows_of_ranks_before(rows, call.process_set)
        places = zip(reduced, begins, rows, strict=True)
        return [jax.lax.slice_in_dim(each, begin, begin + n_rows) for each, begin, n_rows in places]
    return _made(call._replace(collective=REDUCESCATTER, rows=tuple(rows)), gradients)


def _of_reducescatter(call: Call, rows: Sequence[int], gradients: Sequence[Any]) -> list[Any]:
    factor = call.prescale * call.postscale
    scaled = [gradient * arrays.on_device(np.asarray(factor, gradient.dtype)) for gradient in gradients]
    if call.op == Sum:
        scaled = [gradient * arrays.cast(_size(call), gradient.dtype) for gradient in scaled]
    gather = Call(ALLGATHER, process_set=call.process_set, name=call.name, rows=tuple(rows), n_ranks=call.n_ranks)
    return _made(gather, scaled)


def _size(call: Call) -> jax.Array:
    return size_p.bind(call=Call(ALLREDUCE, process_set=call.process_set))


# --- vmap


def _batched(tensors: Sequence[Any], dimensions: Sequence[Any], *, call: Call) -> Any:
    if call.collective not in _ELEMENTWISE or call.op == Adasum:
        what = "with op=Adasum " if call.op == Adasum else ""
        raise NotSupportedError(
            f"{call.kind} {what}has no vmap: its result is not made element by element. Call it on the whole batch, "
            "outside vmap"
        )
    moved = [
        tensor if dimension is None else jax.numpy.moveaxis(tensor, dimension, 0)
        for tensor, dimension in zip(tensors, dimensions, strict=True)
    ]
    return collective_p.bind(*moved, call=call), [None if each is None else 0 for each in dimensions]


batching.primitive_batchers[collective_p] = _batched
