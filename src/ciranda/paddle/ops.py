"""The collectives on tensors of dygraph. Names, arguments and defaults are Horovod's.

Tensors are in CPU memory and have any shape. `name` identifies the call across ranks: all ranks must use the same one.
Without names, all ranks must make the same calls in the same order. The blocking forms that return a new tensor are
differentiable: see `ciranda._collectives.rules`. In programs, use the operators (`ciranda.paddle.operators`).
"""

from __future__ import annotations

from functools import partial

from ciranda._collectives.names import export
from ciranda.paddle.tensors import collectives

export("paddle", globals(), partial(getattr, collectives))
