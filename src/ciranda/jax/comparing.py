"""The check that all ranks have the same parameters: at once, or in a compiled program as its runs come to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core

from ciranda._frameworks.looks import bytes_at
from ciranda._frameworks.options import PREFIX, Options
from ciranda._frameworks.parameters import KERAS_REMEDY, Contents, Parameter, ParameterCheck
from ciranda.jax import _plugin, arrays
from ciranda.jax._primitive import look_p, names_for_looks
from ciranda.jax._tracing import is_traced

#: Compares parameters: a method of a check.
How = Callable[[list[Parameter]], None]

_REMEDY = "params = broadcast_parameters(params)"


def make_check(name: str, options: Options) -> ParameterCheck:
    """Return the check of the variables of Keras whose gradients have this name."""
    return ParameterCheck(
        options.numbered(name), PREFIX, options.process_set, _contents, KERAS_REMEDY, only_warn=options.only_warns
    )


def compare(check: ParameterCheck, parameters: list[Parameter], gradients: list[Any]) -> list[Any]:
    """Compare variables of Keras: see `ciranda._frameworks.gradients.Compare`."""
    _compare(check, check.name, [each._replace(value=each.value.value) for each in parameters], check.compare_later)
    return gradients


def check_of_tree(name: str | None, process_set: Any) -> ParameterCheck:
    """Return the check of the parameters of an optimizer of optax; its calls may have no name."""
    return ParameterCheck(name, "distributed()", process_set, _contents, _REMEDY, has_names=True)


def compare_tree(check: ParameterCheck, name: str | None, params: Any) -> None:
    """Compare the arrays of a pytree, now or when the traced program runs; `name`: as of check_of_tree()."""
    named = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]]
    called = None if name is None else f"{name}.parameters"
    _compare(check, called, [Parameter(path, path, leaf) for path, leaf in named], check.compare)


def _compare(check: ParameterCheck, name: str | None, parameters: list[Parameter], how: How) -> None:
    shared = [each for each in parameters if _is_communicable(each.value)]
    if any(is_traced(each.value) for each in shared) or not core.trace_state_clean():
        _look(check, name, shared, how)
    else:
        how(shared)


def _is_communicable(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray)) and arrays.is_communicable(value.dtype)


def _kind(value: Any) -> str:
    return f"{np.dtype(value.dtype)} {list(value.shape)}"


def _contents(value: Any) -> Contents:
    return Contents(_kind(value), arrays.readable_content(value))


def _look(check: ParameterCheck, name: str | None, parameters: list[Parameter], how: How) -> None:
    """Add a look at the parameters to the program that is being traced."""
    # The program may be traced again with the same parameters, which must not be kept.
    outlines = [(each.key, each.name, _kind(each.value), each.value.nbytes) for each in parameters]

    def see(addresses: Sequence[int]) -> bool:
        check.name = names_for_looks[look]
        how(
            [
                Parameter(key, called, Contents(kind, bytes_at(address, n_bytes)))
                for (key, called, kind, n_bytes), address in zip(outlines, addresses, strict=True)
            ]
        )
        return check.has_compared(key for key, *_ in outlines)

    look = _plugin.looks.add(name or "distributed", see)
    look_p.bind(*(jax.lax.stop_gradient(jnp.asarray(each.value)) for each in parameters), look=look, name=name)
