"""Optimizers of optax whose gradients are those of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ciranda._frameworks import require
from ciranda._frameworks.options import check_factor, positive
from ciranda._ops import Average
from ciranda.jax.compression import Compressor, NoneCompressor
from ciranda.jax.ops import grouped_allreduce
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
    name: str | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return `optimizer` so that its `update()` combines the gradients of all ranks first, in one call.

    Its state is that of `optimizer`, so that a checkpoint of one is one of the other; with accumulation it is that of
    `optax.MultiSteps`. Use it outside `jit` or inside, as any other.

    Args:
        optimizer: of optax.
        op: Average (the default), Sum or Adasum.
        compression: what to send, as Compression.none, Compression.fp16 or Compression.bf16.
        backward_passes_per_step: after so many calls of `update()` the mean of their gradients is combined, and makes
            one step; the updates of the calls before are zero. What optax calls `every_k_schedule`.
        gradient_predivide_factor: with op=Average: divides the gradients by this before they are summed, and by
            size() over this afterwards. Both are done by the engine.
        process_set: the ranks whose gradients are combined.
        name: of the call; needed where several optimizers are updated outside jit by several threads.

    Raises:
        InvalidArgumentError: a factor with another op than Average; fewer than one backward pass.
    """
    require("optax", "ciranda.jax.distributed()")
    import optax

    check_factor(gradient_predivide_factor, op)
    passes = positive(backward_passes_per_step)
    factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
    inner = optax.with_extra_args_support(optimizer)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        combined = grouped_allreduce(
            gradients,
            name=name,
            compression=compression,
            op=op,
            prescale_factor=factors[0],
            postscale_factor=factors[1],
            process_set=process_set,
        )
        return inner.update(combined, state, params, **extra)

    together = optax.GradientTransformationExtraArgs(inner.init, update)
    if passes == 1:
        return together
    steps = optax.MultiSteps(together, every_k_schedule=passes)
    return optax.GradientTransformationExtraArgs(steps.init, steps.update)


__all__ = ["distributed"]
