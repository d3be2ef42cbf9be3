"""Names for the parameters of a DistributedOptimizer.

A parameter is any hashable object that a framework trains; `kind` is its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ciranda._frameworks.misuse import Misuse, WrongNamesError
from ciranda._numbering import Numbering, era_of
from ciranda.process_sets import ProcessSet

Parameter = TypeVar("Parameter", bound=Hashable)

_LONGEST_NAME = 200


class Number(NamedTuple):
    """Numbers the optimizers without names of a process set, in the order in which they are wrapped."""

    #: How often the ranks had joined: while some have, the others may go on wrapping.
    joins: int
    nth: int


_unnamed = Numbering()


def next_number(process_set: ProcessSet) -> Number:
    """Return the number of one more optimizer without names."""
    return Number(era_of(process_set).joins, _unnamed.next(process_set))


def _check_pairs(named: Sequence[Any], kind: type) -> None:
    wrong = [
        item
        for item in named
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], kind))
    ]
    if wrong:
        raise WrongNamesError(
            Misuse.NOT_PAIRS,
            "named_parameters must be pairs (tuples) of name and parameter, as model.named_parameters() gives them; "
            f"got {type(wrong[0]).__name__} among them",
        )


def name_parameters(
    everything: Sequence[Parameter],
    named_parameters: Iterable[tuple[str, Parameter]] | None,
    number: Number | None,
    kind: type,
) -> dict[Parameter, str]:
    """Return a name for every parameter of an optimizer, `everything`: those given, or derived from its number.

    Raises:
        InvalidArgumentError: `named_parameters` has entries that are not pairs, a name twice, or not all of the
            optimizer's parameters.
    """
    if named_parameters is None:
        assert number is not None
        prefix = f"noname.{number.joins}.{number.nth}"
        return {parameter: f"{prefix}.{index}" for index, parameter in enumerate(everything)}
    named = list(named_parameters)
    _check_pairs(named, kind)
    twice = sorted(name for name, count in Counter(name for name, _ in named).items() if count > 1)
    if twice:
        text = f"parameter names in named_parameters must be unique; found twice: {twice}"
        raise WrongNamesError(Misuse.NAMED_TWICE, text, twice)
    names = {parameter: name for name, parameter in named}
    missing: list[Any] = [parameter for parameter in everything if parameter not in names]
    shapes = [tuple(parameter.shape) for parameter in missing]
    if shapes:
        raise WrongNamesError(
            Misuse.NOT_NAMED,
            f"named_parameters was given, but {len(shapes)} of the optimizer's {len(everything)} parameters are not "
            f"named there; their shapes are {shapes}",
            list(map(id, missing)),
        )
    return {parameter: names[parameter] for parameter in everything}


def name_of_added(names: Mapping[Any, str]) -> str:
    """Return a name for one more parameter of an optimizer; the name of its first identifies the optimizer."""
    return f"{next(iter(names.values()))}.added.{len(names)}"


def joined(names: Sequence[str]) -> str:
    """Return the name of a group of parameters; the first name alone would make it unique."""
    text = "+".join(names)
    return text if len(text) <= _LONGEST_NAME else f"{names[0]}+...+{names[-1]} ({len(names)} parameters)"
