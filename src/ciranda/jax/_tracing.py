"""Traced calls of the collectives in `ciranda._collectives.rules`. Their derivatives are in `_derivatives`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core

from ciranda import _core
from ciranda._collectives import Gradients, rules
from ciranda._collectives.base import whole_numbers
from ciranda._ops import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    REDUCESCATTER,
    divides_by_all,
)
from ciranda.errors import InvalidArgumentError, NotSupportedError, ScalarError
from ciranda.jax import _derivatives, _uses, arrays  # noqa: F401 (two register the primitive's rules)
from ciranda.jax._primitive import Call, collective_p, size_p
from ciranda.process_sets import ProcessSet, id_of

# The engine's limit, in bytes.
_LONGEST_NAME = 1024


def is_traced(tensor: Any) -> bool:
    """Whether this is a traced value, whose content is unknown."""
    return isinstance(tensor, jax.core.Tracer)


class Tracing(Gradients[jax.Array]):
    """The collectives of traced values, under jit, grad, vmap and transformations that use them."""

    def needed(self, tensors: Sequence[Any]) -> bool:
        """Whether one of them is traced, or a program is being traced, which then contains the call."""
        return any(map(is_traced, tensors)) or not core.trace_state_clean()

    def record(self, rule: rules.Rule[jax.Array], tensors: Sequence[Any]) -> list[jax.Array]:
        """Return the results of the rule's call."""
        traced = [arrays.communicable(jnp.asarray(tensor)) for tensor in tensors]
        call = _call_of(rule, traced)
        results = list(collective_p.bind(*traced, call=call))
        if call.collective == ALLTOALL and call.splits is None:
            results += [_equal_counts(call, each) for each in traced]
        return results

    def kind(self, tensor: Any) -> Any:
        """Return the dtype."""
        return tensor.dtype

    def zeros(self, shape: tuple[int, ...], kind: Any) -> jax.Array:
        """Return zeros."""
        return jnp.zeros(shape, kind)

    def cast(self, tensor: Any, dtype: Any) -> jax.Array:
        """Return the tensor in another dtype."""
        return jnp.asarray(tensor, dtype)


def _call_of(rule: rules.Rule[jax.Array], tensors: Sequence[jax.Array]) -> Call:
    """Return the traced program's call for a rule. Raises the engine's errors for invalid arguments."""
    name = _checked_name(rule.name)
    if isinstance(rule, rules.Allreduce):
        return _reduction(ALLREDUCE, name, rule.call)
    if isinstance(rule, rules.Reducescatter):
        place = rule.call.process_set
        n, position = _n_ranks(place), place.rank() or 0
        rows = tuple(each // n + (position < each % n) for each in _rows(tensors, "reducescatter"))
        return _reduction(REDUCESCATTER, name, rule.call)._replace(rows=rows, n_ranks=n)
    if isinstance(rule, rules.Allgather):
        n = _n_ranks(rule.process_set)
        rows = tuple(each * n for each in _rows(tensors, "allgather"))
        return Call(ALLGATHER, process_set=id_of(rule.process_set), name=name, rows=rows, n_ranks=n)
    if isinstance(rule, rules.Broadcast):
        root = _whole(rule.root_rank, "root_rank")
        return Call(BROADCAST, root=root, process_set=id_of(rule.process_set), name=name)
    if isinstance(rule, rules.Alltoall):
        _rows(tensors, "alltoall")
        splits, n = _equal_or_given(rule.splits), _n_ranks(rule.process_set)
        return Call(ALLTOALL, process_set=id_of(rule.process_set), name=name, splits=splits, n_ranks=n)
    raise NotSupportedError(
        f"{type(rule).__name__.lower()} of a traced value: it is for values outside jit only, and has no gradient here"
    )


def _reduction(collective: int, name: str | None, call: rules.Reduction) -> Call:
    if call.weight is not None:
        raise NotSupportedError(
            "a weighted average of a traced value: scale it first, and divide by the sum of weights"
        )
    op = _whole(call.op, "op")
    if op not in _core.REDUCE_OPS.values():
        raise InvalidArgumentError(f"there is no reduction with number {op}; use Average, Sum, Min, Max or Product")
    divides = divides_by_all(call.divisor, op)
    factors = _factor(call.prescale, "prescale_factor"), _factor(call.postscale, "postscale_factor")
    return Call(collective, op, -1, *factors, id_of(call.process_set), divides, name)


def _factor(factor: Any, what: str) -> float:
    if is_traced(factor):
        raise NotSupportedError(
            f"{what} is traced, but a program has it as a number: multiply the tensor, or the result"
        )
    try:
        number = float(factor)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(factor, str) or not math.isfinite(number):
        raise InvalidArgumentError(f"{what} must be a finite number, not {factor!r}")
    return number


def _whole(number: Any, what: str) -> int:
    if is_traced(number):
        raise NotSupportedError(f"{what} is traced, but a program has it as a number: jax.jit(..., static_argnames=)")
    try:
        return operator.index(number)
    except TypeError:
        raise InvalidArgumentError(f"{what} must be a whole number, not {number!r}") from None


def _checked_name(name: Any) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or "\0" in name:
        raise InvalidArgumentError(f"a name must be a string without NUL characters, or None; got {name!r}")
    try:
        n_bytes = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"a name must be text that UTF-8 can encode, not {name!r}") from None
    if not 1 <= n_bytes <= _LONGEST_NAME:
        raise InvalidArgumentError(f"a name must have 1 to {_LONGEST_NAME} bytes, this one has {n_bytes}")
    return name


def _n_ranks(process_set: ProcessSet) -> int:
    n = process_set.size()
    if not n:
        id_of(process_set)
        raise InvalidArgumentError(f"{process_set!r}: there is no such process set now; call init() first")
    return n


def _rows(tensors: Sequence[jax.Array], what: str) -> list[int]:
    if any(tensor.ndim == 0 for tensor in tensors):
        raise ScalarError(f"{what} of a scalar: it needs at least one dimension")
    return [tensor.shape[0] for tensor in tensors]


def _equal_or_given(splits: Sequence[Any] | None) -> tuple[tuple[int, ...], ...] | None:
    if splits is None or all(each is None for each in splits):
        return None
    if any(is_traced(each) for each in splits):
        raise NotSupportedError("alltoall with traced splits: the shape of its result would depend on their values")
    return tuple(() if each is None else tuple(whole_numbers(np.asarray(each))) for each in splits)


def _equal_counts(call: Call, tensor: jax.Array) -> jax.Array:
    """Return the number of rows from each rank. A program that does not use it does not compute it."""
    size = size_p.bind(call=Call(ALLREDUCE, process_set=call.process_set, name=call.name, n_ranks=call.n_ranks))
    n_rows = arrays.on_device(np.asarray(tensor.shape[0], np.int32))
    return jnp.broadcast_to(jax.lax.div(n_rows, size), (call.n_ranks,))
