"""DistributedOptimizer: an optimizer that combines the gradients of all ranks before it steps."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ciranda._frameworks.groups import make_groups
from ciranda._frameworks.marks import distributed_among
from ciranda._frameworks.naming import name_parameters, next_number
from ciranda._frameworks.options import Options, check_factor, positive
from ciranda._ops import Adasum, Average, Divisor, choose_op, divides_by_all
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch.adasum import AdasumOptimizer
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.gradient_optimizer import GradientOptimizer
from ciranda.torch.overlapping_optimizer import OverlappingOptimizer
from ciranda.torch.tensors import is_trained
from ciranda.torch.wrapping import check_optimizer, wrap

Tensor = torch.Tensor
Groups = int | Sequence[Sequence[Tensor]] | None


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient_as_bucket_view: bool = False,
    divisor: Divisor = "contributors",
    overlap_forward: torch.nn.Module | None = None,
) -> Any:
    """Return an optimizer of `optimizer`'s own class whose `step()` uses the gradients of all ranks.

    It takes over the state and the parameter groups of `optimizer`, which should not be used any more. A parameter
    without a gradient on this rank contributes zeros; without a gradient on any rank it is unchanged. The gradients of
    parameters whose attribute `is_distributed` is True, as those of `ciranda.torch.nn.ShardedLinear`, stay local.

    Args:
        optimizer: any torch optimizer.
        named_parameters: as `model.named_parameters()`: all parameters of the optimizer, with unique names that are
            the same on every rank. Without them parameters are identified by their position.
        compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
        backward_passes_per_step: how many backward passes accumulate locally before gradients are combined.
        op: Average, Sum, Min, Max or Product; or Adasum, which combines the changes of each rank's own step.
        gradient_predivide_factor: f multiplies gradients by 1 / f before they are averaged, and by f afterwards.
        num_groups: deprecated, use `groups`.
        groups: a number: that many groups of parameters whose gradients are combined together; or the groups
            themselves, as lists of parameters; others are combined one by one. By default small neighbours are grouped.
        sparse_as_dense: combine sparse gradients as dense ones, and make them sparse again for the step. By default the
            rows of all ranks are gathered.
        process_set: the ranks whose gradients are combined; the others step with their own.
        gradient_as_bucket_view: the gradients that are combined together are also contiguous in memory, as one tensor
            for each dtype, which is sent as one. On one host, from the second step on, they are in memory that the
            ranks share, and are combined in place. Not with op=Adasum, which combines no gradients.
        divisor: the divisor of an average while ranks have joined: "contributors", the number of ranks that take part;
            or "world", that of all ranks of the process set, as Horovod does. Weighted averages divide by the sum of
            the weights.
        overlap_forward: the model: `step()` does not wait, and each module's parameters are updated just before the
            module's next forward pass, while gradients of later modules are still being combined. Code that reads
            parameters otherwise than through the model or its state_dict() must call `synchronize()` first. Not with
            op=Adasum or LBFGS.

    Raises:
        InvalidArgumentError: (a ValueError) `optimizer` is a model, or distributed already; names are missing or not
            unique, an argument is out of range, or arguments cannot be combined.
    """
    id_of(process_set)
    chosen = choose_op(op, None)
    check_factor(gradient_predivide_factor, chosen)
    check_optimizer(optimizer, "DistributedOptimizer")
    if num_groups:
        warnings.warn("the argument `num_groups` is deprecated: use `groups`", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    passes = positive(backward_passes_per_step)
    divides_by_all(divisor)  # raises for an invalid one
    if gradient_as_bucket_view and chosen == Adasum:
        raise InvalidArgumentError("gradient_as_bucket_view=True cannot be used with op=Adasum: no gradients are sent")
    if overlap_forward is not None and (chosen == Adasum or isinstance(optimizer, torch.optim.LBFGS)):
        raise InvalidArgumentError("overlap_forward cannot be used with op=Adasum or LBFGS: they step with all at once")
    options = Options(
        compression,
        passes,
        chosen,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
        has_buckets=gradient_as_bucket_view,
        divisor=divisor,
    )
    if named_parameters is None:
        options.number = next_number(process_set)
    everything = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = name_parameters(everything, named_parameters, options.number, torch.Tensor)
    own = distributed_among(names)
    trained = [parameter for parameter in names if is_trained(parameter) and parameter not in own]
    members = make_groups(trained, groups, torch.Tensor, lambda tensor: tensor.nbytes)
    if overlap_forward is not None:
        overlapping = wrap(optimizer, OverlappingOptimizer, options, names, members)
        overlapping.overlap_forward(overlap_forward)
        return overlapping
    return wrap(optimizer, AdasumOptimizer if chosen == Adasum else GradientOptimizer, options, names, members)
