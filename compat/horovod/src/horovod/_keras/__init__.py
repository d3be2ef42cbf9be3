"""What `horovod.keras` and `horovod.tensorflow.keras` share: Horovod's rules for optimizers of Keras.

Optimizers of Keras 2 that are wrapped here name this module as theirs, as Horovod's do; so it has Keras' own classes,
as which they are loaded without being wrapped.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras

import ciranda.keras as base
from ciranda._frameworks.parameters import warning_only
from ciranda.errors import InvalidArgumentError
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
