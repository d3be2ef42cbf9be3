"""The modules of Ciranda for Keras' backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import keras
import numpy as np

from ciranda._frameworks.gradients import GradientCombiner, Groups
from ciranda._frameworks.options import Options
from ciranda.errors import CirandaError

MODULES = {"tensorflow": "ciranda.tensorflow", "jax": "ciranda.jax", "torch": "ciranda.torch"}


def is_keras_3() -> bool:
    """Whether the module `keras` is Keras 3, which has backends."""
    return int(keras.__version__.partition(".")[0]) >= 3


def backend() -> str:
    """Return "tensorflow", "jax" or "torch"."""
    name: str = keras.backend.backend() if is_keras_3() else "tensorflow"
    if name not in MODULES:
        raise ImportError(f"ciranda.keras serves Keras on TensorFlow, JAX and torch, not on {name}", name=name)
    return name


def operations() -> Any:
    """Return the module whose collectives take the tensors of Keras' backend."""
    return import_module(MODULES[backend()])


def as_ciranda_error(error: Exception) -> Exception | None:
    """Return the error of `ciranda.errors` for an exception of the backend, or None."""
    module = operations()
    if backend() == "tensorflow":
        found: Exception | None = module.as_ciranda_error(error)
        return found
    try:
        with module.ciranda_errors() if backend() == "jax" else nullcontext():
            raise error
    except CirandaError as stands_for:
        return stands_for
    except Exception:
        return None


def tensor_of(array: Any) -> Any:
    """Return a tensor of the backend."""
    if is_keras_3():
        return keras.ops.convert_to_tensor(array)
    import tensorflow  # which Keras 3 may do without

    return tensorflow.convert_to_tensor(array)


def make_combiner(name: str, options: Options, groups: Groups) -> GradientCombiner:
    """Return the combiner of gradients of Keras' backend; see GradientCombiner."""
    comparing = import_module(f"{MODULES[backend()]}.comparing")
    check = comparing.make_check(name, options)
    if backend() == "tensorflow":
        from ciranda.tensorflow import combining  # other backends do without TensorFlow

        return combining.make_combiner(name, options, groups, after=combining.after, check=check)
    return GradientCombiner(operations, name, options, groups, after=_after, check=check, compare=comparing.compare)


def _after(call: Callable[[Any], Any], gradient: Any) -> Any:
    call(tensor_of(np.array(False)))
    return gradient
