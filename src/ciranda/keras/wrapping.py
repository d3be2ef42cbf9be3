"""Makes an optimizer of Keras distributed: an instance of a class derived from the optimizer's own.

The class has every name of the wrapped one, so that saved optimizers can be loaded without Ciranda.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import keras

from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.gradients import GradientCombiner, Groups, check_groups
from ciranda._frameworks.naming import next_number
from ciranda._frameworks.options import PREFIX, Options, check_factor, positive
from ciranda._ops import Adasum, Average, Divisor, choose_op, divides_by_all
from ciranda.errors import InvalidArgumentError, NotSupportedError
from ciranda.keras import backends
from ciranda.keras.loss_scale import share_overflow
from ciranda.keras.marked import MARK, is_distributed
from ciranda.process_sets import ProcessSet, global_process_set, id_of

When = Literal["apply", "compute"]


def combiner_of(optimizer: Any) -> GradientCombiner | None:
    """Return the combiner of the gradients, if this is a DistributedOptimizer, or has one inside."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return inner._combiner if is_distributed(inner) else None


def combines_every_step(optimizer: Any) -> bool:
    """Whether this is, or contains, a DistributedOptimizer of all ranks, each step of which all ranks make."""
    combiner = combiner_of(optimizer)
    return combiner is not None and combiner.is_of_all_in_every_step


def _combiner(options: Options, groups: Groups, name: str | None, wrapped: type) -> GradientCombiner:
    number = next_number(options.process_set) if name is None else None
    own = replace(options, number=number)
    return backends.make_combiner(f"{PREFIX}.{name or wrapped.__name__}", own, groups)


def _derived(base: type, added: type, **attributes: Any) -> Any:
    names = {"__module__": base.__module__, "__doc__": base.__doc__, "__qualname__": base.__qualname__}
    # Keras 2 saves a class of its own by its public names, which derived classes do not inherit.
    public = {name: value for name, value in vars(base).items() if name.startswith("_keras_api_names")}
    derived = type(base.__name__, (added, base), {**names, **public, **attributes, MARK: added})
    _save_as(base, derived)
    return derived


def _save_as(base: type, derived: type) -> None:
    """Make Keras save a `derived` optimizer under the name for which `base` is registered, if it is.

    That name goes on to stand for `base`, as which it is loaded.
    """
    name = keras.saving.get_registered_name(base)
    if name == base.__name__:
        return
    objects = keras.saving.get_custom_objects()
    known = objects.get(name, base)
    keras.saving.register_keras_serializable(*name.split(">", 1))(derived)
    objects[name] = known


def _taken_over(optimizer: Any, derived: Any) -> Any:
    """Return an instance of `derived` with the state of `optimizer`."""
    distributed = derived.__new__(derived)
    distributed.__dict__.update(vars(optimizer))
    distributed._begin()
    return distributed


def _wrapped(optimizer: Any, options: Options, make_combiner: Callable[[], GradientCombiner], when: When) -> Any:
    attributes: dict[str, Any] = {"_make_combiner": staticmethod(make_combiner)}
    if hasattr(optimizer, "_backend_apply_gradients"):
        from ciranda.keras.optimizer import added_for  # of Keras 3 alone

        added: type = added_for(options.op)
        scale = 1.0 if options.averages_passes or options.passes == 1 else float(options.passes)
        attributes |= {"_passes": options.passes, "_scale": scale}
    else:
        from ciranda.keras import optimizer_2  # of Keras 2 alone

        if options.op == Adasum:
            raise NotSupportedError("op=Adasum is not available for the optimizers of Keras 2")
        added = optimizer_2.AtApply if when == "apply" else optimizer_2.AtCompute
        attributes |= {"_distribution": options}
    return _taken_over(optimizer, _derived(type(optimizer), added, **attributes))


def _with_inner(scaler: Any, inner: Any) -> Any:
    """Return the LossScaleOptimizer `scaler` with `inner`, which has the state of its inner optimizer."""
    if hasattr(inner, "_backend_apply_gradients"):
        scaler.inner_optimizer = inner
    else:
        for name in ("_optimizer", "_trackable"):
            object.__setattr__(scaler, name, inner)
    return scaler


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    combine_when: When = "apply",
    divisor: Divisor = "contributors",
) -> Any:
    """Return an optimizer of `optimizer`'s own class that steps with the gradients of all ranks.

    It takes over the state of `optimizer`, which should not be used any more. Once saved, it can be loaded without
    Ciranda, as the wrapped optimizer. A LossScaleOptimizer stays one: its inner optimizer is wrapped, and all ranks
    skip a step if the gradients of any are not finite.

    Args:
        optimizer: any optimizer of Keras.
        name: identifies the gradients across ranks. Without it, all ranks must wrap the same optimizers in the same
            order.
        device_dense: accepted for compatibility; without effect, as `device_sparse`.
        device_sparse: see `device_dense`.
        compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
        sparse_as_dense: combine sparse gradients as dense ones. By default the rows of all ranks are gathered.
        gradient_predivide_factor: f multiplies gradients by 1 / f before they are summed, and by f / size afterwards.
        op: Average, Sum, Min, Max or Product; or Adasum, which combines the changes of each rank's own step.
        backward_passes_per_step: how many steps accumulate locally before gradients are combined and used.
        average_aggregated_gradients: whether accumulated gradients are divided by that number.
        num_groups: older form of `groups`.
        groups: a number: that many groups of gradients that are combined together; or the groups themselves, as lists
            of variables; others are combined one by one. By default all gradients of a step are one operation.
        process_set: the ranks whose gradients are combined; the others step with their own.
        scale_local_gradients: whether gradients that are not combined are divided by the number of ranks.
        combine_when: "apply": all applied gradients; or, with Keras 2, "compute": only those that the optimizer
            computes itself, as Horovod does.
        divisor: the divisor of an average while ranks have joined: "contributors", the number of ranks that take part;
            or "world", that of all ranks of the process set, as Horovod does.

    Raises:
        InvalidArgumentError: (a ValueError) an argument is out of range, or the optimizer is distributed already.
        NotSupportedError: (a ValueError) op=Adasum with an optimizer of Keras 2.
    """
    id_of(process_set)
    chosen = choose_op(op, None)
    check_factor(gradient_predivide_factor, chosen)
    divides_by_all(divisor)  # raises for an invalid one
    if is_distributed(optimizer):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    options = Options(
        compression,
        positive(backward_passes_per_step),
        chosen,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
        divisor=divisor,
        scale_local=scale_local_gradients,
        averages_passes=average_aggregated_gradients,
    )
    share_overflow()
    inner = getattr(optimizer, "inner_optimizer", None)
    wrapped = optimizer if inner is None else inner
    if is_distributed(wrapped):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    make = partial(_combiner, options, check_groups(groups, num_groups), name, type(wrapped))
    distributed = _wrapped(wrapped, options, make, combine_when)
    return distributed if inner is None else _with_inner(optimizer, distributed)


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
    combine_when: When = "apply",
    divisor: Divisor = "contributors",
) -> Any:
    """Return a DistributedOptimizer that leaves the gradients of some layers to each rank.

    Args:
        optimizer: as for DistributedOptimizer, like every argument but `local_layers`.
        local_layers: a layer or several, which have been built, whose gradients are not combined.

    Raises:
        InvalidArgumentError: also for a local layer that is not a layer, or has not been built.
    """
    variables = local_variables(local_layers)
    distributed = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        0,
        groups,
        process_set,
        scale_local_gradients,
        combine_when,
        divisor,
    )
    combining = getattr(distributed, "inner_optimizer", distributed)
    for variable in variables:
        combining.register_local_var(variable)
    return distributed


def local_variables(local_layers: Any) -> list[Any]:
    """Return the trainable variables of a layer, or of several."""
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, Iterable) else [layers]
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise InvalidArgumentError(f"local_layers must be layers of Keras; got {type(layer).__name__}")
        if not layer.built:
            raise InvalidArgumentError(
                f"the local layer {layer.name!r} has no variables yet: build the model before it is given"
            )
    return [variable for layer in layers for variable in layer.trainable_weights]
