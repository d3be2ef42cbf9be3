"""The table of the collectives' names: in which forms they exist, and in which frameworks.

The modules `ops` of the frameworks, and their stubs (`tools/make_stubs.py`), are made of it. Functions that a framework
writes itself, as those of `ciranda.mxnet`, are not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple


class Row(NamedTuple):
    """What there is of a collective.

    Attributes:
        frameworks: who has it, separated by spaces.
        has_in_place: whether it also works in place, where the framework's tensors can be written to.
        is_traced: whether programs of JAX can contain it; its blocking groups are pytrees there.
    """

    frameworks: str
    has_in_place: bool = False
    is_traced: bool = False


TABLE = {
    "allreduce": Row("numpy torch paddle jax", has_in_place=True, is_traced=True),
    "allgather": Row("numpy torch paddle jax", is_traced=True),
    "broadcast": Row("numpy torch paddle jax", has_in_place=True, is_traced=True),
    "reducescatter": Row("numpy torch paddle jax", is_traced=True),
    "alltoall": Row("numpy torch paddle jax", has_in_place=True, is_traced=True),
    "reduce": Row("numpy torch paddle jax tensorflow", has_in_place=True),
    "gather": Row("numpy torch paddle jax tensorflow"),
    "scatter": Row("numpy torch paddle jax tensorflow"),
    "scan": Row("numpy torch jax"),
    "send": Row("numpy torch paddle tensorflow"),
    "recv": Row("numpy torch paddle tensorflow"),
}
#: Frameworks whose functions never work in place.
_IMMUTABLE = ("jax", "tensorflow")


#: The functions of JAX that take pytrees of tensors.
OF_TREES = frozenset(f"grouped_{collective}" for collective, row in TABLE.items() if row.is_traced)


def names_of(framework: str) -> list[str]:
    """Return the names of the functions that the module of a framework gets from the table."""
    return [
        "".join(parts)
        for collective, row in TABLE.items()
        if framework in row.frameworks.split()
        for parts in product(
            ("", "grouped_"),
            (collective,),
            ("", "_async"),
            ("", "_") if row.has_in_place and framework not in _IMMUTABLE else ("",),
        )
    ]


def export(framework: str, namespace: dict[str, Any], function: Callable[[str], Any]) -> None:
    """Give a module the framework's collectives, each as made by `function` of its name, and `__all__`."""
    names = names_of(framework)
    namespace.update({name: function(name) for name in names}, __all__=names)
