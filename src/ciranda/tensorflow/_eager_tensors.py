"""Functions of NumPy arrays as functions of eager tensors, for `ciranda.tensorflow.at_once`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
import tensorflow as tf

from ciranda._ops import Handle
from ciranda.errors import NotSupportedError
from ciranda.numpy import ops
from ciranda.tensorflow._autograph import unconverted
from ciranda.tensorflow._execution import is_building_graph

_Function = Callable[..., Any]


def _array_of(value: Any) -> Any:
    return np.array(value.numpy()) if tf.is_tensor(value) else value  # a copy, also of scalars, and writable


def _result_in_place_of(given: Any, result: Any) -> Any:
    """Return the array `result` as a tensor; or the variable `given`, to which it is assigned."""
    if result is None:
        return None
    return given if isinstance(given, tf.Variable) and given.assign(result) is not None else tf.constant(result)


def _without_gradient(name: str, result: Any, tensors: list[Any]) -> Any:
    """Return the tensor `result`, whose gradient raises NotSupportedError: a tape would return None otherwise."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def told(result: Any, *_tensors: Any) -> Any:
        def backward(*_gradients: Any) -> Any:
            raise NotSupportedError(f"{name} has no gradient here: use tf.stop_gradient() on what it is given")

        return tf.identity(result), backward

    return told(result, *tensors)


def of_tensors(name: str) -> _Function:
    """Return a function of `ciranda.numpy` as one of tensors; one that receives assigns to variables."""
    function: _Function = getattr(ops, name)
    receives = "recv" in name
    parameters = signature(function)

    @unconverted
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_building_graph():
            raise NotSupportedError(
                f"{name} is for tensors that have values: call it outside of tf.function (or, where all ranks make "
                "their calls in the same order, by tf.py_function)"
            )
        given = next(iter(parameters.bind(*args, **kwargs).arguments.values()))
        arguments, options = tf.nest.map_structure(_array_of, (list(args), kwargs))
        several = isinstance(given, (list, tuple))
        tensors = [tf.convert_to_tensor(each) for each in (given if several else [given])]

        def finished(results: Any) -> Any:
            if not isinstance(results, list):
                return finished_one(given, results)
            return [finished_one(*pair) for pair in zip(given, results, strict=True)]

        def finished_one(mine: Any, result: Any) -> Any:
            made = _result_in_place_of(mine if receives else None, result)
            return made if made is None or made is mine else _without_gradient(name, made, tensors)

        result = function(*arguments, **options)
        return result.then(finished) if isinstance(result, Handle) else finished(result)

    call.__module__ = "ciranda.tensorflow.at_once"
    return call
