"""Optimizers of optax whose gradients are those of all ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from ciranda._frameworks import require
from ciranda._frameworks.options import check_factor, positive
from ciranda._ops import Average, Divisor, Sum, divides_by_all
from ciranda.jax.comparing import check_of_tree, compare_tree
from ciranda.jax.compression import Compressor, NoneCompressor
from ciranda.jax.ops import allreduce, grouped_allreduce
from ciranda.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    import optax


def distributed(
    optimizer: optax.GradientTransformation,
    *,
    op: int = Average,
    compression: type[Compressor] = NoneCompressor,
    backward_passes_per_step: int = 1,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    divisor: Divisor = "contributors",
    name: str | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return an optimizer like `optimizer` whose `update()` first combines the gradients of all ranks, in one call.

    Its state is that of `optimizer`, so checkpoints are interchangeable; with accumulation it is that of
    `optax.MultiSteps`. Use it outside `jit` or inside, as any other. The arguments of `update()` for line searches and
    schedules that follow the loss (`value`, `grad` and `value_fn`) are combined like the gradients: every rank gives
    its own, and all take the same step.

    Args:
        optimizer: of optax.
        op: Average (the default), Sum or Adasum.
        compression: the compressor, as Compression.none, Compression.fp16 or Compression.bf16.
        backward_passes_per_step: the number of calls of `update()` whose mean gradient is combined, and makes one step;
            the updates of the calls before are zero. optax's `every_k_schedule`.
        gradient_predivide_factor: with op=Average: divides the gradients by this before they are summed, and by
            size() over this afterwards. Both are done by the engine.
        process_set: the ranks whose gradients are combined.
        divisor: the divisor of an average while ranks have joined: "contributors", the number of ranks that take part;
            or "world", that of all ranks of the process set, as Horovod does.
        name: of the call; needed if several threads update several optimizers outside jit.

    Raises:
        InvalidArgumentError: a factor with another op than Average; fewer than one backward pass; an invalid divisor.
    """
    require("optax", "ciranda.jax.distributed()")
    import optax

    check_factor(gradient_predivide_factor, op)
    divides_by_all(divisor)  # raises for an invalid one
    passes = positive(backward_passes_per_step)
    factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
    check = check_of_tree(name, process_set)
    inner = optax.with_extra_args_support(optimizer)

    def combined(gradients: Any, suffix: str = "") -> Any:
        return grouped_allreduce(
            gradients,
            name=None if name is None else f"{name}{suffix}",
            compression=compression,
            op=op,
            prescale_factor=factors[0],
            postscale_factor=factors[1],
            process_set=process_set,
            divisor=divisor,
        )

    def combined_value(value: Any) -> Any:
        called = None if name is None else f"{name}.value"
        how = Sum if op == Sum else Average
        return allreduce(value, name=called, op=how, process_set=process_set, divisor=divisor)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        if params is not None and process_set.included():
            compare_tree(check, name, params)
        ours = combined(gradients)
        if "grad" in extra:
            extra["grad"] = ours if extra["grad"] is gradients else combined(extra["grad"], ".grad")
        if "value" in extra:
            extra["value"] = combined_value(extra["value"])
        if "value_fn" in extra:
            extra["value_fn"] = _of_all_ranks(extra["value_fn"], combined_value, combined)
        return inner.update(ours, state, params, **extra)

    together = optax.GradientTransformationExtraArgs(inner.init, update)
    if passes == 1:
        return together
    steps = optax.MultiSteps(together, every_k_schedule=passes)
    return optax.GradientTransformationExtraArgs(steps.init, steps.update)


def _of_all_ranks(
    function: Callable[..., Any], combined_value: Callable[[Any], Any], combined: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the function whose value, and gradient by its arguments, are those of all ranks."""
    value_of_all = jax.custom_vjp(combined_value)
    value_of_all.defvjp(lambda value: (combined_value(value), None), lambda _, gradient: (gradient,))
    of_all_ranks = jax.custom_vjp(lambda params: params)
    of_all_ranks.defvjp(lambda params: (params, None), lambda _, gradient: (combined(gradient, ".grad"),))

    @functools.wraps(function)  # optax passes the arguments of update() that the signature names
    def of_all(params: Any, *arguments: Any, **options: Any) -> Any:
        return value_of_all(function(of_all_ranks(params), *arguments, **options))

    return of_all


__all__ = ["distributed"]
