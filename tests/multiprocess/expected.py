"""What a reduction over ranks gives, bit for bit, computed with NumPy; and inputs to try it on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

import ciranda as hvd

Array = npt.NDArray[Any]

OPS = {
    "average": hvd.Average,
    "sum": hvd.Sum,
    "min": hvd.Min,
    "max": hvd.Max,
    "product": hvd.Product,
    "bitwise_and": hvd.BitwiseAnd,
    "bitwise_or": hvd.BitwiseOr,
    "bitwise_xor": hvd.BitwiseXor,
    "logical_and": hvd.LogicalAnd,
    "logical_or": hvd.LogicalOr,
    "logical_xor": hvd.LogicalXor,
}
DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
COUNTS = [0, 1, 7, 1000, 100_003]


def accepts(op: str, dtype: str) -> bool:
    kind = np.dtype(dtype).kind
    if op.startswith(("bitwise", "logical")):
        return kind in ("ui" if op.startswith("bitwise") else "b")
    return kind in ("buif" if op in ("min", "max") else "uifc")


def values(rank: int, count: int, dtype: str, op: str, seed: int = 0) -> Array:
    """Return the input of `rank`: the same for everyone who asks."""
    rng = np.random.default_rng([seed, rank, count])
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, count).astype(kind)
    if kind.kind == "f":
        low, high = (0.5, 1.5) if op == "product" else (-4, 4)
        return rng.uniform(low, high, count).astype(kind)
    if kind.kind == "c":
        return (rng.uniform(-1.2, 1.2, count) + 1j * rng.uniform(-1.2, 1.2, count)).astype(kind)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)


def in_rank_order(inputs: Sequence[Array], combine: Callable[[Array, Array], Array]) -> Array:
    """Combine in the binary tree that all algorithms keep: the left part is the largest power of two."""
    if len(inputs) == 1:
        return inputs[0]
    middle = 1 << (len(inputs) - 1).bit_length() - 1
    return combine(in_rank_order(inputs[:middle], combine), in_rank_order(inputs[middle:], combine))


def reduced(
    inputs: Sequence[Array],
    op: str,
    prescale: float = 1.0,
    postscale: float = 1.0,
    weights: Sequence[float] | None = None,
    divisor: int | None = None,
) -> Array:
    """Return what the ranks' inputs give, bit for bit.

    Args:
        inputs: of the ranks that take part, in their order.
        op: a key of OPS.
        prescale: the factor of inputs. Integers with factors are computed as fractions, which takes long.
        postscale: the factor of results.
        weights: of the ranks, for a weighted average.
        divisor: of an average, if it is not the number of inputs.
    """
    dtype = inputs[0].dtype
    if op.startswith(("bitwise", "logical")):
        return np.asarray(getattr(np, op).reduce(np.stack(inputs), axis=0))
    if dtype.kind == "b":
        return np.asarray(getattr(np, op)(np.stack(inputs), axis=0))
    if op != "average" or weights is not None:
        divisor = 1
    elif divisor is None:
        divisor = len(inputs)
    if dtype.kind in "ui":
        return _reduced_integers(inputs, op, prescale, postscale, divisor)
    shares = [1.0] * len(inputs) if weights is None else [weight / sum(weights) for weight in weights]
    return _reduced_floats(inputs, op, [prescale * share for share in shares], postscale, divisor)


def _reduced_floats(
    inputs: Sequence[Array], op: str, prescales: Sequence[float], postscale: float, divisor: int
) -> Array:
    """Compute 16-bit types in float32, complex ones part by part, others as they are; round after every step."""
    dtype = inputs[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    part = wide.type(0).real.dtype.type
    combine = {"min": np.minimum, "max": np.maximum, "product": _product}.get(op, np.add)
    with np.errstate(all="ignore"):
        parts = [each.astype(wide).ravel().view(part) * part(by) for each, by in zip(inputs, prescales, strict=True)]
        total = in_rank_order([each.view(wide) for each in parts], combine).view(part)
        return (total / part(divisor) * part(postscale)).view(wide).astype(dtype).reshape(inputs[0].shape)


def _product(a: Array, b: Array) -> Array:
    if a.dtype.kind != "c":
        return a * b
    product = np.empty_like(a)
    product.real = a.real * b.real - a.imag * b.imag
    product.imag = a.real * b.imag + a.imag * b.real
    return product


def _reduced_integers(inputs: Sequence[Array], op: str, prescale: float, postscale: float, divisor: int) -> Array:
    """Sums and products wrap, as NumPy's do; averages are computed in integers that their sums fit into."""
    dtype = inputs[0].dtype
    combine = {"min": np.minimum, "max": np.maximum, "product": np.multiply}.get(op, np.add)
    scaled = [_scaled(each, prescale, 1, dtype) for each in inputs]
    if op != "average":
        return _scaled(functools.reduce(combine, scaled), postscale, 1, dtype)
    total = functools.reduce(combine, [each.astype(object if dtype.itemsize == 8 else np.int64) for each in scaled])
    if postscale != 1.0:
        return _scaled(total, postscale, divisor, dtype)
    return np.asarray(np.sign(total) * (np.abs(total) // divisor)).astype(dtype)


def _scaled(values: Array, factor: float, divisor: int, dtype: np.dtype[Any]) -> Array:
    """Return values * factor / divisor: as exact as float64 is, or more so where that has no fractions."""
    if factor == 1.0 and divisor == 1:
        return values
    limits = np.iinfo(dtype)

    def scaled(value: int) -> int:
        exact = Fraction(factor) * value / divisor
        truncated = int(float(exact)) if abs(exact) < 2**53 else int(exact)
        return min(max(truncated, int(limits.min)), int(limits.max))

    return np.array([scaled(int(value)) for value in values.flat], dtype).reshape(values.shape)


def assert_reduced(actual: Array, inputs: Sequence[Array], op: str, case: object = "") -> None:
    """Every bit must be right."""
    expected = reduced(inputs, op)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), case
    if actual.tobytes() != expected.tobytes():
        np.testing.assert_array_equal(actual, expected, err_msg=str(case))
        raise AssertionError(f"{case}: only the sign of a zero differs")
