"""The check that all ranks have the same variables: at once, or in a graph as its runs come to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ciranda import _core
from ciranda._frameworks.looks import bytes_at
from ciranda._frameworks.options import Options
from ciranda._frameworks.parameters import KERAS_REMEDY, Contents, Parameter, ParameterCheck
from ciranda.tensorflow import _plugin, _xla
from ciranda.tensorflow._execution import is_building_graph, perform


def make_check(name: str, options: Options) -> ParameterCheck:
    """Return the check of the variables of gradients that have this name."""
    who = name.partition(".")[0]
    return ParameterCheck(
        options.numbered(name), who, options.process_set, _contents, KERAS_REMEDY, only_warn=options.only_warns
    )


def compare(check: ParameterCheck, parameters: list[Parameter], gradients: list[Any]) -> list[Any]:
    """Compare variables: see `ciranda._frameworks.gradients.Compare`."""
    if not is_building_graph():
        check.compare_later(parameters)
        return gradients
    place = next((place for place, gradient in enumerate(gradients) if gradient is not None), None)
    if place is None:
        return gradients
    with tf.control_dependencies(_look(check, [each for each in parameters if _is_communicable(each.value)])):
        return [*gradients[:place], tf.identity(gradients[place]), *gradients[place + 1 :]]


def _is_communicable(variable: Any) -> bool:
    return tf.as_dtype(variable.dtype).base_dtype.name in _core.DATA_TYPES and None not in tuple(variable.shape)


def _contents(variable: Any) -> Contents:
    array = np.ascontiguousarray(variable.numpy())
    return Contents(_kind(variable), array.reshape(-1).view(np.uint8))


def _kind(variable: Any) -> str:
    return f"{tf.as_dtype(variable.dtype).base_dtype.name} {list(variable.shape)}"


def _look(check: ParameterCheck, parameters: list[Parameter]) -> list[Any]:
    """Add a look at the variables to the graph. Return what depends on it."""
    tensors = [tf.convert_to_tensor(each.value) for each in parameters]
    kinds = [_kind(each.value) for each in parameters]
    sizes = [tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors]

    def see(addresses: Any) -> bool:
        seen = [
            each._replace(value=Contents(kind, bytes_at(address, n_bytes)))
            for each, kind, address, n_bytes in zip(parameters, kinds, addresses, sizes, strict=False)
        ]
        check.compare_later(seen)
        return check.has_compared(each.key for each in parameters)

    look = _plugin.looks.add(str(check.name), see)
    shown = tensors or [tf.constant(0)]
    if _xla.is_compiling():
        return _xla.look(look, shown)
    attributes = {"T": tuple(tensor.dtype.as_datatype_enum for tensor in shown), "look": look}
    return perform("CirandaLook", {"tensors": shown}, attributes, 1, None)
