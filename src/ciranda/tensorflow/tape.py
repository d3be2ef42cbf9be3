"""Tapes whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.gradients import GradientCombiner, Groups, check_groups
from ciranda._frameworks.options import Options, check_factor
from ciranda._frameworks.parameters import lasting_check
from ciranda._ops import Average, Divisor, choose_op, divides_by_all
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.tensorflow.combining import after, make_combiner
from ciranda.tensorflow.comparing import make_check

Pairs = list[tuple[Any, Any]]


class _CombiningTape:
    """The methods that DistributedGradientTape adds to a tape's class."""

    _combiner: GradientCombiner
    _generic: GradientCombiner

    def register_local_source(self, source: Any) -> None:
        """Keep the gradient with regard to `source` local: it is not combined. The same on all ranks."""
        from ciranda.keras.loss_scale import share_overflow  # Keras is optional

        self._combiner.keep_local(source)
        self._generic.keep_local_for_others(source)
        share_overflow()

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """Return the gradients of all ranks together: see `tf.GradientTape.gradient`.

        Args:
            target: the differentiated tensors.
            sources: the variables or tensors of the gradients, in any structure.
            output_gradients: as for `tf.GradientTape`.
            unconnected_gradients: as for `tf.GradientTape`.
            use_generic_names: whether the gradients have the same names wherever in the graph they are.
        """
        own = super().gradient(target, sources, output_gradients, unconnected_gradients)  # type: ignore[misc]
        flat_sources = tf.nest.flatten(sources)
        # IndexedSlices are gradients, not structures; a gradient may be None.
        flat = own if isinstance(own, (list, tuple)) and isinstance(sources, (list, tuple)) else None
        if flat is None or len(flat) != len(flat_sources):
            flat = tf.nest.flatten(own)
        combiner = self._generic if use_generic_names else self._combiner
        return tf.nest.pack_sequence_as(sources, combiner.combined(flat, flat_sources))

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[Pairs, Pairs]:
        """Return pairs of source and gradient: the local ones, and those that are combined."""
        flat = tf.nest.flatten(sources)
        gradients = self.gradient(target, flat, output_gradients, use_generic_names=use_generic_names)
        pairs = list(zip(flat, gradients, strict=True))
        local = [pair for pair in pairs if self._combiner.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._combiner.is_local(pair[0])]


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    divisor: Divisor = "contributors",
) -> Any:
    """Return a tape, of `gradtape`'s own class, whose `gradient()` combines the gradients of all ranks.

    It has recorded what `gradtape` has; use it outside of the `with` block of `gradtape`, or as that block's tape.

    Args:
        gradtape: a `tf.GradientTape`.
        device_dense: the device on which dense gradients are combined; "" for that of the gradients.
        device_sparse: the same for sparse ones.
        compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
        sparse_as_dense: combine sparse gradients as dense ones. By default the rows of all ranks are gathered.
        op: Average, Sum, Min, Max, Product or Adasum.
        gradient_predivide_factor: f multiplies gradients by 1 / f before they are summed, and by f / size afterwards.
        num_groups: older form of `groups`.
        groups: a number: that many groups of gradients that are combined together; or the groups themselves, as lists
            of variables; others are combined one by one. By default all gradients of a call are one operation.
        process_set: the ranks whose gradients are combined; the others get their own.
        scale_local_gradients: whether gradients that are not combined are divided by the number of ranks.
        divisor: the divisor of an average while ranks have joined: "contributors", the number of ranks that take part;
            or "world", that of all ranks of the process set, as Horovod does.

    Raises:
        InvalidArgumentError: (a ValueError) an argument is out of range.
    """
    id_of(process_set)
    chosen = choose_op(op, None)
    check_factor(gradient_predivide_factor, chosen)
    divides_by_all(divisor)  # raises for an invalid one
    if isinstance(gradtape, _CombiningTape):
        raise InvalidArgumentError("the tape is a DistributedGradientTape already")
    options = Options(
        compression,
        1,
        chosen,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
        divisor=divisor,
        scale_local=scale_local_gradients,
    )
    checked = check_groups(groups, num_groups)
    base = type(gradtape)
    derived: Any = type(base.__name__, (_CombiningTape, base), {"__module__": base.__module__, "__doc__": base.__doc__})
    tape = derived.__new__(derived)
    tape.__dict__.update(vars(gradtape), _recording=False)  # an open `with` block of `gradtape` is not this tape's
    name = "DistributedGradientTape"
    how: dict[str, Any] = {"device_dense": device_dense, "device_sparse": device_sparse, "after": after}
    how["check"] = lasting_check(name, process_set, lambda: make_check(name, options))
    tape._combiner = make_combiner(name, options, checked, ignore_name_scope=False, **how)
    tape._generic = make_combiner(f"{name}.grad", options, checked, **how)
    return tape


def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
    divisor: Divisor = "contributors",
) -> Any:
    """Return a DistributedGradientTape that leaves the gradients of some layers to each rank.

    Args:
        gradtape: as for DistributedGradientTape, like every argument but `local_layers`.
        local_layers: a layer of Keras or several, whose gradients are not combined.
    """
    variables = local_variables(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
        divisor,
    )
    for variable in variables:
        tape.register_local_source(variable)
    return tape


def local_variables(local_layers: Any) -> list[Any]:
    """Return the trainable variables of a layer, or of several."""
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, Iterable) else [layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise InvalidArgumentError(f"local_layers must be layers of Keras; got {type(layer).__name__}")
    return [variable for layer in layers for variable in layer.trainable_weights]
