"""Local parameters, such as a shard of a layer: neither they nor their gradients are combined."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from ciranda.errors import InvalidArgumentError

Parameter = TypeVar("Parameter", bound=Hashable)


def is_distributed(tensor: Any) -> bool:
    """Whether a tensor is marked: by an attribute `is_distributed` that is True."""
    # torch's tensors have a method of that name.
    return getattr(tensor, "is_distributed", False) is True


def distributed_among(names: Mapping[Parameter, str], listed: Iterable[Parameter | str] = ()) -> set[Parameter]:
    """Return those parameters that are marked, or listed, by themselves or by name.

    Raises:
        InvalidArgumentError: a listed entry is not among the parameters.
    """
    by_name = {name: parameter for parameter, name in names.items()}
    found = {parameter for parameter in names if is_distributed(parameter)}
    for each in listed:
        parameter = by_name.get(each) if isinstance(each, str) else each
        if parameter is None or parameter not in names:
            what = f"'{each}'" if isinstance(each, str) else f"a {type(each).__name__}"
            raise InvalidArgumentError(
                f"{what} is listed as distributed, but is not among the optimizer's {len(names)} parameters"
            )
        found.add(parameter)
    return found
