"""How Horovod's errors begin where scripts and people look for its words. Ciranda's own sentence follows.

`DistributedOptimizer` is Ciranda's, with Horovod's divisor and these openings.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from ciranda._frameworks.misuse import Misuse, WrongNamesError
from horovod.torch import _averages

OPENINGS = {
    Misuse.NOT_PAIRS: "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
    "model.named_parameters().",
    Misuse.NAMED_TWICE: "Parameter names in named_parameters must be unique. Found duplicates: {}.",
    Misuse.NOT_NAMED: "named_parameters was specified, but one or more model parameters were not named. Python object "
    "ids: {}.",
    Misuse.MORE_PASSES: "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally.",
    Misuse.ZEROED_BEFORE_STEP: "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition.",
}


@wraps(_averages.DistributedOptimizer)
def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:  # noqa: N802 (Horovod's name)
    """`ciranda.torch.DistributedOptimizer`, with Horovod's divisor and openings of errors."""
    try:
        optimizer = _averages.DistributedOptimizer(*args, **kwargs)
    except WrongNamesError as error:
        raise error.opened(OPENINGS) from None
    optimizer._options.openings = OPENINGS
    return optimizer
