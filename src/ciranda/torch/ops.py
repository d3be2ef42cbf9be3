"""The collectives on torch tensors. Names, arguments and defaults are those of `horovod.torch`, where that has them.

Tensors are in CPU memory or on a GPU of NVIDIA's, have any shape (0-d and empty included) and a dtype that the engine
supports: bool, the integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64, complex128. Tensors need
not be contiguous; a non-contiguous one is copied, and an in-place result is copied back by `synchronize()`.

`name` identifies the call across ranks: all ranks must use the same one. Without names, all ranks must make the same
calls in the same order.

The blocking forms that return a new tensor (except `recv`) are differentiable: see `ciranda._collectives.rules`. The
asynchronous and in-place forms are not. A result that only the root gets is None elsewhere. While autograd records, it
is a tensor without elements instead, from which this rank starts its part of the backward pass: every rank must run it,
for example by `result.sum().backward()`.

Every call may raise, besides its own errors: NotInitializedError; InvalidArgumentError for an invalid dtype, operation
or factor; and, from the blocking form or from `synchronize()`, MismatchError if ranks disagree about shape, dtype,
operation, root, factors or kind of collective, RanksLostError if a rank has died, AbortedError if the world was shut
down.
"""

from __future__ import annotations

from functools import partial

from ciranda._collectives.names import export
from ciranda.torch.tensors import collectives

export("torch", globals(), partial(getattr, collectives))
