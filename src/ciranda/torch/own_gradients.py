"""Gradients that are each rank's own, as of a shard: where those of one rank overflow, no rank may make the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


def _overflows(gradients: Sequence[Tensor], device: torch.device | str) -> Tensor:
    """Return [1] if any of the gradients is not finite, else [0], on `device`. The host waits for no GPU."""
    are_finite = [each.isfinite().all().to(device) for each in gradients]
    if not are_finite:
        return torch.zeros(1, device=device)
    return torch.stack(are_finite).all().logical_not().float().reshape(1)


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
    first = next(iter(_values(names)), None)
    mine = _overflows(_values(own), "cpu" if first is None else first.device)
    anyones = ops.allreduce(mine, op=Max, name=name, process_set=process_set)
    if first is not None:
        element = (0,) * first.dim()
        first[element] = torch.where(anyones[0] > 0, torch.inf, first[element])
