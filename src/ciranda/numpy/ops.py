"""The collectives on NumPy arrays.

In all of them `tensor` is an array (or, for read-only inputs, anything that `numpy.asarray` takes) of any
shape, 0-d and empty included, whose dtype the engine supports: bool, signed and unsigned integers of 8 to 64 bits,
float16, float32, float64, complex64, complex128, and bfloat16 of the package ml_dtypes. Arrays need not be contiguous:
a non-contiguous one is copied, and an in-place result is copied back by `synchronize()`.

`name` identifies the call across ranks: all ranks must use the same one. Without names, all ranks must make the same
calls in the same order.

Every call may raise, besides its own errors: NotInitializedError; InvalidArgumentError for an invalid dtype, operation
or factor; and, from the blocking form or from `synchronize()`, MismatchError if ranks disagree about shape, dtype,
operation, root, factors or kind of collective, RanksLostError if a rank has died, AbortedError if the world was shut
down.
"""

from __future__ import annotations

from functools import partial

from ciranda._collectives.names import export
from ciranda.numpy._numpy_collectives import collectives

export("numpy", globals(), partial(getattr, collectives))
