"""Functions that a program uses several times, and that contain collectives.

JAX traces a jitted function, or the body of a loop, once for all its uses, and newer versions compile it once, too. The
calls of two uses would share one name, and ranks could match one use with the other. So a function with a collective is
copied for each use in a program: each use is compiled separately, and its calls get their own names, in program order.
"""

from __future__ import annotations

import inspect
from typing import Any

from jax._src import ad_checkpoint, core
from jax._src import pjit as jits
from jax._src.interpreters import partial_eval
from jax._src.lax.control_flow import conditionals, loops

from ciranda.jax._primitive import CollectiveEffect

#: The primitive of a jitted function; its name differs between versions.
_JIT: Any = getattr(jits, "jit_p", None) or jits.pjit_p  # type: ignore[attr-defined,unused-ignore]
#: Primitives that contain other functions. `eval_jaxpr_p` is a step of an unrolled scan.
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
    """Return an operation's parameter, in which all functions with a collective are copies."""
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


#: Whether a rule's first argument is the operation's position in the user's code.
_HAS_SOURCE = "source_info" in inspect.signature(partial_eval.DynamicJaxprTrace.default_process_primitive).parameters
for _primitive in _USERS:
    _register(_primitive)
