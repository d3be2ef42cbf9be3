"""The groups of a DistributedOptimizer's parameters whose gradients are combined together.

A parameter is any hashable object that a framework trains; `kind` is its class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from ciranda._frameworks import planner
from ciranda._frameworks.naming import Parameter
from ciranda.errors import InvalidArgumentError

Item = TypeVar("Item")

#: Gradients travel together up to this size: of a small model, all in one call. A further call costs more time than
#: the earlier start of its part saves.
_SMALL_GROUP_BYTES = 1 << 20


def _join_small(parameters: list[Parameter], n_bytes_of: Callable[[Parameter], int]) -> list[list[Parameter]]:
    """Group neighbours, from the last to the first: about the order of the backward pass."""
    reached = list(reversed(parameters))
    tensors = [
        planner.Tensor(str(place), n_bytes_of(parameter), ready=place) for place, parameter in enumerate(reached)
    ]
    buckets = planner.plan(tensors, bucket_bytes=_SMALL_GROUP_BYTES).buckets
    return [[reached[int(name)] for name in bucket.names] for bucket in buckets]


def as_many_groups(items: list[Item], n_groups: int) -> list[list[Item]]:
    """Divide items, in their order, into `n` groups of nearly equal size."""
    bounds = [len(items) * index // n_groups for index in range(n_groups + 1)]
    return [items[start:end] for start, end in pairwise(bounds)]


def make_groups(
    parameters: list[Parameter],
    groups: int | Sequence[Sequence[Parameter]] | None,
    kind: type,
    n_bytes_of: Callable[[Parameter], int],
) -> list[list[Parameter]]:
    """Divide `parameters` into groups whose gradients are combined together.

    Raises:
        InvalidArgumentError: `groups` is neither None, nor a number from 0, nor lists without a repeated parameter.
    """
    if isinstance(groups, int) and groups < 0:
        raise InvalidArgumentError(f"groups must not be negative; got {groups}")
    n_groups = min(groups, len(parameters)) if isinstance(groups, int) else None
    if n_groups == 0 or groups is None:
        return _join_small(parameters, n_bytes_of)
    if n_groups is not None:
        return as_many_groups(parameters, n_groups)
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise InvalidArgumentError("groups must be a number, or a list of lists of parameters")
    grouped = [parameter for group in groups for parameter in group]
    if not all(isinstance(parameter, kind) for parameter in grouped):
        raise InvalidArgumentError("groups must be a number, or a list of lists of parameters")
    if len(set(grouped)) != len(grouped):
        raise InvalidArgumentError("a parameter is in more than one group")
    known = set(parameters)
    chosen = [[parameter for parameter in group if parameter in known] for group in groups]
    alone = known - set(grouped)
    return [group for group in chosen if group] + [[parameter] for parameter in parameters if parameter in alone]
