"""Names for the parameters of a DistributedOptimizer, and which of them travel together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch

from ciranda._basics import circle
from ciranda.errors import InvalidArgumentError

Tensor = torch.Tensor
Groups = int | Sequence[Sequence[Tensor]] | None

#: Small gradients travel together up to this size.
_SMALL_GROUP_BYTES = 128 << 10
_LONGEST_NAME = 200


class _Numbering:
    """Numbers the optimizers without names of each circle, so that several of them do not share names.

    It starts anew with every circle: a rank that has just come counts like those that were there before.
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._count = 0

    def next(self) -> int:
        if circle.epoch != self._epoch:
            self._epoch, self._count = circle.epoch, 0
        self._count += 1
        return self._count - 1


_unnamed = _Numbering()


def _check_pairs(named: Sequence[Any]) -> None:
    wrong = [
        item
        for item in named
        if not (
            isinstance(item, tuple)
            and len(item) == 2
            and isinstance(item[0], str)
            and isinstance(item[1], torch.Tensor)
        )
    ]
    if wrong:
        raise InvalidArgumentError(
            "named_parameters must be pairs (tuples) of name and parameter, as model.named_parameters() gives them; "
            f"got {type(wrong[0]).__name__} among them"
        )


def name_parameters(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> dict[Tensor, str]:
    """Return a name for every parameter of `optimizer`.

    Raises:
        InvalidArgumentError: `named_parameters` holds something other than pairs, a name twice, or not all of the
            optimizer's parameters.
    """
    everything = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        number = _unnamed.next()
        return {parameter: f"noname.{number}.{index}" for index, parameter in enumerate(everything)}
    named = list(named_parameters)
    _check_pairs(named)
    twice = sorted(name for name, count in Counter(name for name, _ in named).items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"parameter names in named_parameters must be unique; found twice: {twice}")
    names = {parameter: name for name, parameter in named}
    shapes = [tuple(parameter.shape) for parameter in everything if parameter not in names]
    if shapes:
        raise InvalidArgumentError(
            f"named_parameters was given, but {len(shapes)} of the optimizer's {len(everything)} parameters are not "
            f"named there; their shapes are {shapes}"
        )
    return {parameter: names[parameter] for parameter in everything}


def joined(names: Sequence[str]) -> str:
    """Return the name of a group of parameters; the first name alone would make it unique."""
    text = "+".join(names)
    return text if len(text) <= _LONGEST_NAME else f"{names[0]}+...+{names[-1]} ({len(names)} parameters)"


def _join_small(parameters: list[Tensor]) -> list[list[Tensor]]:
    """Put neighbours together up to a size that costs hardly more to move than to announce.

    From the last to the first, as the backward pass reaches them.
    """
    groups: list[list[Tensor]] = []
    n_bytes = 0
    for parameter in reversed(parameters):
        more = parameter.numel() * parameter.element_size()
        if not groups or n_bytes + more > _SMALL_GROUP_BYTES:
            groups.append([])
            n_bytes = 0
        groups[-1].append(parameter)
        n_bytes += more
    return groups


def _as_many_groups(parameters: list[Tensor], n_groups: int) -> list[list[Tensor]]:
    if n_groups < 0:
        raise InvalidArgumentError(f"groups must not be negative; got {n_groups}")
    n_groups = min(n_groups, len(parameters))
    if n_groups == 0:
        return _join_small(parameters)
    bounds = [len(parameters) * index // n_groups for index in range(n_groups + 1)]
    return [parameters[start:end] for start, end in pairwise(bounds)]


def make_groups(parameters: list[Tensor], groups: Groups) -> list[list[Tensor]]:
    """Divide `parameters` into those whose gradients travel together.

    Raises:
        InvalidArgumentError: `groups` is neither None, nor a number from 0, nor lists in which no parameter stands
            twice.
    """
    if groups is None:
        return _join_small(parameters)
    if isinstance(groups, int):
        return _as_many_groups(parameters, groups)
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise InvalidArgumentError("groups must be a number, or a list of lists of parameters")
    grouped = [parameter for group in groups for parameter in group]
    if not all(isinstance(parameter, torch.Tensor) for parameter in grouped):
        raise InvalidArgumentError("groups must be a number, or a list of lists of parameters")
    if len(set(grouped)) != len(grouped):
        raise InvalidArgumentError("a parameter stands in more than one group")
    known = set(parameters)
    chosen = [[parameter for parameter in group if parameter in known] for group in groups]
    alone = known - set(grouped)
    return [group for group in chosen if group] + [[parameter] for parameter in parameters if parameter in alone]
