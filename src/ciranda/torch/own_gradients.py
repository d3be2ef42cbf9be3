"""Gradients that are each rank's own, as of a shard: where those of one rank overflow, no rank may make the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.naming import joined
from ciranda._frameworks.options import PREFIX
from ciranda._ops import Max
from ciranda.process_sets import ProcessSet
from ciranda.torch import ops

Tensor = torch.Tensor


def _values(parameters: Iterable[Tensor]) -> list[Tensor]:
    gradients = [parameter.grad.detach() for parameter in parameters if parameter.grad is not None]
    found = [each._values() if each.is_sparse else each for each in gradients]
    return [each for each in found if each.numel() > 0]


def share_overflow(names: Mapping[Tensor, str], process_set: ProcessSet) -> None:
    """Make a gradient of this rank infinite if any rank has one among its own that is not finite.

    torch.amp.GradScaler looks at the gradients of its rank alone. The others would step the parameters that all ranks
    have, and go on with another scale.

    Args:
        names: the parameters of an optimizer. Where none is each rank's own, nothing travels.
        process_set: the ranks that compare, all of which call this.
    """
    own = [each for each in names if is_distributed(each)]
    if not own:
        return
    name = f"{PREFIX}.{joined(list(names.values()))}.overflow"
    mine = torch.tensor([float(any(not bool(each.isfinite().all()) for each in _values(own)))], device="cpu")
    if ops.allreduce(mine, op=Max, name=name, process_set=process_set).item() == 0:
        return
    for values in _values(names)[:1]:
        values[(0,) * values.dim()] = torch.inf
