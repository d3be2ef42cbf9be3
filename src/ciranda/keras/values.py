"""The values of variables, of any Keras and backend, and their broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ciranda import _basics
from ciranda._frameworks.variables import explained, no_variables
from ciranda.errors import MismatchError
from ciranda.keras.backends import is_keras_3
from ciranda.numpy.ops import grouped_broadcast_
from ciranda.process_sets import ProcessSet, global_process_set

Values = list[np.ndarray[Any, Any]]


def _value_of(variable: Any) -> np.ndarray[Any, Any]:
    if hasattr(variable, "__array__") and not hasattr(variable, "_value"):
        return np.array(variable.numpy())  # a variable of TensorFlow
    return np.array(keras.ops.convert_to_numpy(variable))


def is_without_eager() -> bool:
    """Whether Keras 2 makes graphs, whose variables have values in its session only."""
    if is_keras_3():
        return False
    import tensorflow

    return not tensorflow.compat.v1.executing_eagerly_outside_functions()


def values_of(variables: Sequence[Any]) -> Values:
    """Return copies of the variables' values."""
    if is_without_eager():
        return [np.array(value) for value in keras.backend.batch_get_value(list(variables))]
    return [_value_of(variable) for variable in variables]


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Assign these values to the variables."""
    if is_without_eager():
        keras.backend.batch_set_value(list(zip(variables, values, strict=True)))
        return
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def scale(variables: Sequence[Any], factor: float) -> None:
    """Multiply the variables by a factor."""
    if is_without_eager():
        assign(variables, [value * factor for value in values_of(variables)])
        return
    for variable in variables:
        variable.assign(variable * factor)


def variables_of(model_or_optimizer: Any) -> list[Any]:
    """Return all variables of a model or an optimizer, also the learning rate, which Keras 2 does not count as one."""
    variables = model_or_optimizer.variables
    found = list(variables() if callable(variables) else variables)
    rate = getattr(model_or_optimizer, "_learning_rate", None)
    is_missing = hasattr(rate, "assign") and all(rate is not variable for variable in found)
    return [*found, rate] if is_missing else found


def broadcast(
    variables: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet = global_process_set
) -> None:
    """Broadcast the variables' values of rank `root_rank`. A collective: one operation for all of them.

    Raises:
        InvalidArgumentError: there is no such rank.
        MismatchError: the ranks' variables differ in number, shape or dtype; the message names the position of one.
    """
    _basics.require_rank(root_rank)
    values = values_of(variables)
    try:
        grouped_broadcast_(values or [no_variables(name)], root_rank, name, process_set)
    except MismatchError as error:
        raise explained(error) from error
    if _basics.rank() != root_rank:
        assign(variables, values)
