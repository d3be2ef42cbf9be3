"""What `horovod.keras` and `horovod.tensorflow.keras` share: Horovod's rules for optimizers of Keras.

Optimizers of Keras 2 that are wrapped here name this module as theirs, as Horovod's do; so it has Keras' own classes,
as which they are loaded without being wrapped.
"""

from __future__ import annotations

import inspect
from functools import wraps
from importlib import import_module
from typing import Any

import keras

import ciranda.keras as base
from ciranda._frameworks.parameters import warning_only
from ciranda.errors import InvalidArgumentError
from ciranda.keras import backends, values
from ciranda.keras.marked import is_distributed

_IS_KERAS_3 = int(keras.__version__.partition(".")[0]) >= 3

if not _IS_KERAS_3:
    _classes = {
        name: value
        for name, value in vars(keras.optimizers).items()
        if inspect.isclass(value) and issubclass(value, keras.optimizers.Optimizer)
    }
    globals().update({**{name.lower(): value for name, value in _classes.items()}, **_classes})

#: What Ciranda's functions do otherwise, unless they are told.
_RULES: dict[str, Any] = {"combine_when": "compute", "divisor": "world"}


@warning_only()
def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any, name: str | None = None, *args: Any, **kwargs: Any
) -> Any:
    """`ciranda.keras.DistributedOptimizer` with Average and Sum.

    With Keras 2, only gradients that the optimizer computes itself are combined; scripts combine others with
    DistributedGradientTape before they apply them.
    """
    bound = inspect.signature(base.DistributedOptimizer).bind(optimizer, name, *args, **kwargs).arguments
    if bound.get("op", base.Average) not in (base.Average, base.Sum):
        raise InvalidArgumentError("op can be Average or Sum only; ciranda.keras.DistributedOptimizer has others")
    return named_as_here(base.DistributedOptimizer(optimizer, name, *args, **{**_RULES, **kwargs}))


@warning_only()
def PartialDistributedOptimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 (Horovod's name)
    """`ciranda.keras.PartialDistributedOptimizer`, by the rules of DistributedOptimizer."""
    return named_as_here(base.PartialDistributedOptimizer(optimizer, *args, **{**_RULES, **kwargs}))


def named_as_here(optimizer: Any) -> Any:
    """Give the class of an optimizer of Keras 2, which is its own, the module that it has in Horovod."""
    if not _IS_KERAS_3 and is_distributed(optimizer):
        type(optimizer).__module__ = __name__
    return optimizer


@warning_only()
def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = base.Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """`ciranda.keras.load_model`, by the rules of DistributedOptimizer."""
    model = base.load_model(filepath, custom_optimizers, custom_objects, compression, legacy_opts, **_RULES)
    if getattr(model, "optimizer", None) is not None:
        named_as_here(model.optimizer)
    return model


def broadcast_global_variables(root_rank: int) -> Any:
    """Give all variables of a graph of TensorFlow 1 the values of rank `root_rank`; see `ciranda.tensorflow`."""
    from ciranda import tensorflow

    return tensorflow.broadcast_global_variables(root_rank)


def _of_tensors(of_arrays: Any) -> Any:
    """Return a collective of `ciranda.keras`, which returns arrays, as one that returns tensors of the backend.

    Where Keras 2 makes graphs, it returns arrays, as a session does.
    """
    name = of_arrays.__name__

    @wraps(of_arrays)
    def call(value: Any, *args: Any, **kwargs: Any) -> Any:
        if values.is_without_eager():
            return of_arrays(value, *args, **kwargs)
        is_tensorflow = backends.backend() == "tensorflow"
        operations = import_module("horovod.tensorflow") if is_tensorflow else backends.operations()
        options = inspect.signature(of_arrays).bind(value, *args, **kwargs).arguments
        del options["value"]
        return getattr(operations, name)(backends.tensor_of(value), **options)

    call.__module__ = __name__
    return call


allreduce = _of_tensors(base.allreduce)
allgather = _of_tensors(base.allgather)
broadcast = _of_tensors(base.broadcast)
reducescatter = _of_tensors(base.reducescatter)
