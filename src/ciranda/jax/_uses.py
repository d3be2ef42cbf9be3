"""Functions that a program uses several times, and the collectives in them.

JAX traces a jitted function, or the body of a loop, once for all its uses, and newer versions compile it once, too.
Then the calls of two uses would be one, with one name, and ranks could match one use with the other. So what has a
collective is copied where a program uses it: each use is compiled by itself, and gives its calls names of their own, in
the order in which the program has them.
"""

from __future__ import annotations

import inspect
from typing import Any

from jax._src import ad_checkpoint, core
from jax._src import pjit as jits
from jax._src.interpreters import partial_eval
from jax._src.lax.control_flow import conditionals, loops

from ciranda.jax._primitive import CollectiveEffect

#: A jitted function; newer versions call it otherwise.
_JIT: Any = getattr(jits, "jit_p", None) or jits.pjit_p  # type: ignore[attr-defined,unused-ignore]
#: What is used by a program with another function, of which it is made. `eval_jaxpr_p` is a step of an unrolled scan.
_USERS: tuple[Any, ...] = (
    _JIT,
    loops.eval_jaxpr_p,
    loops.scan_p,
    loops.while_p,
    conditionals.cond_p,
    core.closed_call_p,
    ad_checkpoint.remat_p,
)


def _has_collective(what: Any) -> bool:
    return any(isinstance(effect, CollectiveEffect) for effect in what.effects)


def _copied(value: Any) -> Any:
    """Return the parameter of an operation with copies of all functions in it that have a collective."""
    if isinstance(value, core.ClosedJaxpr):
        return value.replace(jaxpr=_copied(value.jaxpr)) if _has_collective(value) else value
    if isinstance(value, core.Jaxpr):
        return value.replace(eqns=list(map(_copied_step, value.eqns))) if _has_collective(value) else value
    if type(value) in (tuple, list):
        return type(value)(map(_copied, value))
    return value


def _copied_step(step: Any) -> Any:
    return step.replace(params=_all_copied(step.params)) if _has_collective(step) else step


def _all_copied(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) for name, value in parameters.items()}


def _register(primitive: Any) -> None:
    usual = partial_eval.custom_staging_rules.get(primitive)

    def stage(trace: Any, *arguments: Any, **parameters: Any) -> Any:
        parameters = _all_copied(parameters)
        if usual is not None:
            return usual(trace, *arguments, **parameters)
        if _HAS_SOURCE:
            source, *arguments = arguments  # type: ignore[assignment]
            return trace.default_process_primitive(primitive, arguments, parameters, source)
        return trace.default_process_primitive(primitive, arguments, parameters)

    partial_eval.custom_staging_rules[primitive] = stage


#: Whether the rules are given, first, where in the user's code the operation stands.
_HAS_SOURCE = "source_info" in inspect.signature(partial_eval.DynamicJaxprTrace.default_process_primitive).parameters
for _primitive in _USERS:
    _register(_primitive)
