"""Checks a rewritten program: what reaches its optimizer has passed one combining operator, on every path.

An abstract run of the program: each value is known by the numbers of combining operators on the paths to it from the
gradients of the losses, where backward passes begin. A gradient of all ranks has {1}. {0} is this rank's own, {0, 1} a
sum of which only some addends were combined, and {2} was combined twice.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from ciranda.errors import InvalidArgumentError

#: What identifies a value: in the old IR a name, which several operators may write one after another.
Key = Hashable
Passed = frozenset[int]

#: The way out where gradients cannot be found.
INSTEAD = (
    "DistributedOptimizer(optimizer).minimize(loss), to which Paddle gives the gradients: GradAllReduce must find them "
    "in a program that is complete"
)

_NOT_FROM_A_LOSS: Passed = frozenset()
_NEVER: Passed = frozenset([0])
_ONCE: Passed = frozenset([1])


class Kind(Enum):
    """What an operator does to the values that it reads."""

    #: It begins a backward pass.
    SEED = auto()
    #: It combines them: each result is that of the value in its place.
    COMBINE = auto()
    #: Each result is computed from the value in its place.
    EACH = auto()
    #: It updates parameters: its results are no gradients.
    STEP = auto()
    #: Every result is computed from all of them.
    OTHER = auto()


class Operator(NamedTuple):
    """An operator of a program."""

    kind: Kind
    reads: Sequence[Key]
    writes: Sequence[Key]
    #: Of a STEP: the parameters' names, and the gradients.
    updates: Sequence[tuple[str, Key]] = ()


def check_combined(operators: Iterable[Operator], own: Collection[str]) -> None:
    """Raise InvalidArgumentError unless every gradient that an optimizer reads has been combined exactly once.

    Args:
        operators: those of the program, in its order.
        own: the names of local parameters, whose gradients must not have been combined.
    """
    passed: dict[Key, Passed] = {}
    for operator in operators:
        for name, gradient in operator.updates:
            _check(name, passed.get(gradient, _NOT_FROM_A_LOSS), name in own)
        found = [passed.get(key, _NOT_FROM_A_LOSS) for key in operator.reads]
        passed.update(zip(operator.writes, _behind(operator, found), strict=False))


def _behind(operator: Operator, found: Sequence[Passed]) -> Sequence[Passed]:
    """Return what the results have passed."""
    if operator.kind is Kind.EACH:
        return found
    if operator.kind is Kind.COMBINE:
        return [frozenset(number + 1 for number in each) for each in found]
    result = _NOT_FROM_A_LOSS.union(*found)
    if operator.kind is not Kind.OTHER:
        result = _NEVER if operator.kind is Kind.SEED else _NOT_FROM_A_LOSS
    return [result] * len(operator.writes)


def _check(name: str, passed: Passed, is_own: bool) -> None:
    if passed == (_NEVER if is_own else _ONCE):
        return
    if is_own:
        fault = "would be combined with those of other ranks, though the parameter is each rank's own"
    elif not passed:
        fault = "is not computed from a loss, as far as the program shows"
    elif passed == _NEVER:
        fault = "would reach the optimizer without those of other ranks, as where two optimizers update a parameter"
    elif 0 in passed:
        fault = "would reach the optimizer with only a part of it combined over the ranks"
    else:
        fault = "would be combined more than once"
    raise InvalidArgumentError(f"the gradient of {name} {fault}. Write the program with {INSTEAD}")
