"""What collectives give, and what their backward passes do, computed with NumPy in float64 (or complex128)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import ml_dtypes
import numpy as np
from framework import Array


def wide(array: Array) -> Array:
    """Return `array` in float64, or complex128: exact, for integers of less than 53 bits."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def reduced(inputs: Sequence[Array], op: str, prescale: float = 1.0, postscale: float = 1.0) -> Array:
    """Combine what the ranks bring. Integers are rounded toward zero where they are scaled or divided."""
    kind = inputs[0].dtype.kind
    if op.startswith("logical"):
        return np.asarray(getattr(np, op).reduce(np.stack(inputs), axis=0))
    if op.startswith("bitwise"):
        return np.asarray(functools.reduce(getattr(np, op), inputs))
    rounded = np.trunc if kind in "iu" else lambda array: array
    scaled = [rounded(wide(each) * prescale) for each in inputs]
    if op == "adasum":
        return adasum(scaled) * postscale
    combine = {"min": np.minimum, "max": np.maximum, "product": np.multiply}.get(op, np.add)
    divisor = len(inputs) if op == "average" else 1
    return np.asarray(rounded(functools.reduce(combine, scaled) * postscale / divisor))


def adasum(inputs: Sequence[Array]) -> Array:
    """Combine in a binary tree, of which the left part is the largest power of two."""
    if len(inputs) == 1:
        return inputs[0]
    middle = 1 << (len(inputs) - 1).bit_length() - 1
    a, b = adasum(inputs[:middle]), adasum(inputs[middle:])
    product, of_a, of_b = np.sum(a * b), np.sum(a * a), np.sum(b * b)
    return np.asarray(a * (1 - product / (2 * of_a) if of_a else 1) + b * (1 - product / (2 * of_b) if of_b else 1))


def rows_of(n_rows: int, n_ranks: int) -> list[int]:
    """Return how many rows each rank gets when they are shared out evenly: the rest in front."""
    return [n_rows // n_ranks + (rank < n_rows % n_ranks) for rank in range(n_ranks)]


def cut(array: Array, counts: Sequence[int]) -> list[Array]:
    """Return the parts of so many rows each."""
    return np.split(array, np.cumsum(counts)[:-1])


def check(actual: Array, wanted: Array, dtype: np.dtype, case: object) -> None:  # type: ignore[type-arg]
    """Raise AssertionError unless `actual` is `wanted`: integers exactly, others but for some roundings."""
    assert actual.dtype == dtype, f"{case}: a result of dtype {actual.dtype}, not {dtype}"
    assert actual.shape == wanted.shape, f"{case}: a result of shape {actual.shape}, not {wanted.shape}"
    if dtype.kind in "biu":
        tolerance = 0.0
    else:
        tolerance = 4 * float(ml_dtypes.finfo(dtype).eps) * max(1.0, float(np.abs(wanted).max(initial=0)))
    off = np.abs(wide(actual) - wide(wanted)).max(initial=0)
    assert off <= tolerance, f"{case}: off by {off}:\n{actual}\ninstead of\n{wanted}"


# --- backward passes, as Horovod defines them: `weights` are the gradients of each rank's result


def allreduce_gradient(weights: Sequence[Array], is_average: bool, factor: float) -> Array:
    return np.sum(weights, axis=0) * factor / (len(weights) if is_average else 1)


def reducescatter_gradient(weights: Sequence[Array], is_average: bool, factor: float) -> Array:
    return np.concatenate(weights) * factor * (1 if is_average else len(weights))


def allgather_gradient(weights: Sequence[Array], counts: Sequence[int], rank: int) -> Array:
    return cut(np.mean(weights, axis=0), counts)[rank]


def alltoall_gradient(weights: Sequence[Array], splits: Sequence[Sequence[int]], rank: int) -> Array:
    """`splits[sender][receiver]` rows went from one to the other."""
    received = [[row[to] for row in splits] for to in range(len(splits))]
    return np.concatenate([cut(each, received[to])[rank] for to, each in enumerate(weights)])
