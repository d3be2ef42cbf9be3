"""What a reduction over ranks must give, computed with NumPy in wide types; and inputs to try it on."""

from __future__ import annotations

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
    room = 8 if op == "average" else 1  # the 64-bit types are averaged in 64 bits
    return rng.integers(limits.min // room, limits.max // room, count, dtype=kind, endpoint=True)


def reduced(inputs: list[Array], op: str) -> Array:
    """Return what the ranks' inputs give: floats in float64, integers exactly, with sums and products that wrap."""
    stacked = np.stack(inputs)
    kind = stacked.dtype
    if op in ("min", "max"):
        return np.asarray(stacked.min(axis=0) if op == "min" else stacked.max(axis=0))
    if op.startswith(("bitwise", "logical")):
        return np.asarray(getattr(np, op).reduce(stacked, axis=0))
    if kind.kind in "fc":
        wide = stacked.astype(np.float64 if kind.kind == "f" else np.complex128)
        total = wide.prod(axis=0) if op == "product" else wide.sum(axis=0)
        return np.asarray(total / len(inputs) if op == "average" else total)
    if op == "product":
        return np.asarray(stacked.prod(axis=0, dtype=kind))
    if op == "sum":
        return np.asarray(stacked.sum(axis=0, dtype=kind))
    total = stacked.sum(axis=0, dtype=np.uint64 if kind.kind == "u" else np.int64)
    size = np.abs(total) // len(inputs)
    return np.asarray(np.where(total < 0, -size, size) if kind.kind == "i" else size).astype(kind)


def assert_reduced(actual: Array, inputs: list[Array], op: str, case: object = "") -> None:
    """Integers must be exact. Floats may be off by the rounding of each step, relative to the summed sizes."""
    expected = reduced(inputs, op)
    assert actual.dtype == inputs[0].dtype, case
    assert actual.shape == expected.shape, case
    if actual.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected, err_msg=str(case))
        return
    steps = 1 if actual.dtype == np.float16 else len(inputs)  # accumulates in float32, and rounds once
    sizes = np.abs(np.stack(inputs)).astype(np.float64)
    scale = np.maximum(sizes.sum(axis=0), np.abs(expected))
    if actual.dtype.kind == "c" and op == "product":
        scale = 3 * sizes.prod(axis=0)  # relative to the size of the whole, whichever part rounds
    allowed = np.finfo(actual.dtype).eps * (steps + 1) * scale
    worst = np.max(np.abs(actual.astype(expected.dtype) - expected) - allowed, initial=-1.0)
    assert worst <= 0, f"{case}: off by {worst} too much"
