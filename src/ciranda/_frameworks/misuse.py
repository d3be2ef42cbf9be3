"""Wrong uses of a DistributedOptimizer for which other interfaces have sentences of their own, which users search for.

Such a sentence opens the message, and Ciranda's, which says more, follows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from ciranda.errors import InvalidArgumentError


class Misuse(enum.Enum):
    """What was done wrong."""

    #: named_parameters does not consist of pairs; has a name twice; lacks parameters.
    NOT_PAIRS = enum.auto()
    NAMED_TWICE = enum.auto()
    NOT_NAMED = enum.auto()
    #: More backward passes than backward_passes_per_step.
    MORE_PASSES = enum.auto()
    #: zero_grad() between a backward pass and the step.
    ZEROED_BEFORE_STEP = enum.auto()


#: The sentences of an interface. A place `{}` is for what is concerned.
Openings = Mapping[Misuse, str]


def opened(openings: Openings, misuse: Misuse, text: str, concerned: Sequence[object] = ()) -> str:
    """Return `text`, behind the opening for `misuse` if there is one."""
    opening = openings.get(misuse)
    return text if opening is None else f"{opening.format(', '.join(map(str, concerned)))} {text}"


class WrongNamesError(InvalidArgumentError):
    """named_parameters do not name an optimizer's parameters."""

    def __init__(self, misuse: Misuse, text: str, concerned: Sequence[object] = ()) -> None:
        super().__init__(text)
        self._said = misuse, text, concerned

    def opened(self, openings: Openings) -> InvalidArgumentError:
        """Return the same error in the words of an interface."""
        return InvalidArgumentError(opened(openings, *self._said))
