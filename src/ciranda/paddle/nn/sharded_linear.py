"""A fully connected layer for very many classes: every rank has some of them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import paddle
from paddle.nn.initializer.uniform import UniformInitializer

from ciranda import _basics
from ciranda._frameworks.sampling import check_rate
from ciranda._frameworks.shards import Shards
from ciranda._numbering import Numbering
from ciranda.errors import InvalidArgumentError
from ciranda.numpy.ops import allgather as allgather_numpy
from ciranda.paddle.nn.batches import gather_features
from ciranda.paddle.nn.tracing import wide_dtype, with_gradient_times
from ciranda.process_sets import global_process_set

#: The least length by which vectors are divided.
SHORTEST = 1e-12
#: The logit of the row that an empty shard has in place of classes: its exponential is 0.
_NO_CLASS = -1e30

_layers = Numbering()


class ShardedLinear(paddle.nn.Layer):  # type: ignore[misc]
    """A fully connected layer whose classes are divided over the ranks, in dygraph and in programs.

    Rank r has shard r: n consecutive shards, whose sizes differ by at most one. The weight has a row for each class
    of the shard (one that no sample can have, where the shard has none). Train it with
    `sharded_softmax_cross_entropy()`.

    Parameters are marked (`is_distributed`), so that `DistributedOptimizer`, `GradAllReduce`, `LocalSGD` and what
    broadcasts parameters leave them alone. They take no part in the clipping of gradients (`need_clip=False`), whose
    norm would differ between ranks.

    The objective is the mean of all ranks' losses. The gradient of a shard is of that: complete, and not to be
    averaged. The gradient of a rank's features is of the sum of the losses, n times as much: averaging what comes of it
    in the layers below gives the objective's gradient there.

    Args:
        in_features: how many numbers there are for each sample.
        n_classes: of all ranks together.
        bias: whether each class has a number that is added.
        normalize: take the cosine of the angle between sample and class in place of the product. Has no bias.
        sample_rate: which share of a shard's classes takes part in a training step (PartialFC): those of the
            batch always, others by chance. In evaluation (of programs: as they are written) all do.
        seed: of the samples; the same on all ranks.
        dtype: of the parameters; by default Paddle's default dtype.
        name: the beginning of the parameters' names.

    Raises:
        InvalidArgumentError: (a ValueError) an argument is out of range.
        NotInitializedError: `init()` has not been called; the shard depends on the rank.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        bias: bool = False,
        normalize: bool = False,
        sample_rate: float = 1.0,
        seed: int = 0,
        dtype: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype or paddle.get_default_dtype())
        if bias and normalize:
            raise InvalidArgumentError("a layer with normalize=True has no bias: its logits are cosines")
        check_rate(sample_rate)
        self.in_features, self.n_classes, self.normalize = in_features, n_classes, normalize
        self.sample_rate, self.seed = sample_rate, seed
        self.shards = Shards(n_classes, _basics.size())
        #: The number of this rank's shard, its first class, and the class after its last.
        self.shard = _basics.rank()
        self.first, self.end = self.shards.bounds(self.shard)
        number = _layers.next(global_process_set)
        #: Identifies the layer across ranks.
        self.label = f"ShardedLinear.{number}"
        #: The number of times that classes were sampled.
        self.n_drawn = 0
        self.weight = self._parameter([max(self.n_rows, 1), in_features], name and f"{name}.w_0", 2 * number)
        self.bias = self._parameter([max(self.n_rows, 1)], name and f"{name}.b_0", 2 * number + 1) if bias else None

    @property
    def n_rows(self) -> int:
        """The number of this rank's classes."""
        return self.end - self.first

    def _parameter(self, shape: list[int], name: str | None, number: int) -> Any:
        # The shard is part of the seed: otherwise classes of different shards would have equal weights.
        origin = int(paddle.framework.core.default_cpu_generator().initial_seed())
        seed = int(np.random.SeedSequence([origin, number, self.shard]).generate_state(1)[0] >> 2) + 1
        bound = float(self.in_features**-0.5)
        parameter = self.create_parameter(
            shape,
            attr=paddle.ParamAttr(name=name, need_clip=False),
            dtype=self._dtype,
            default_initializer=UniformInitializer(-bound, bound, seed),
        )
        parameter.is_distributed = True
        return parameter

    def forward(self, features: Any) -> Any:
        """Return the logits of this rank's classes, a column for each, for the samples of all ranks, in their order.

        All ranks must call it, with batches that may differ in size or be empty, and make the backward pass too.
        """
        self.check_ranks()
        everyones = gather_features(features, self)
        logits = self.products(everyones, self.weight, self.bias)
        return with_gradient_times(logits, 1.0 / self.shards.n_shards)

    def prepared(self, features: Any) -> Any:
        """Return a rank's features as they are gathered: unchanged, or divided by their length."""
        if not self.normalize:
            return features
        wide = wide_dtype(features.dtype, self.weight.dtype)
        return paddle.nn.functional.normalize(_cast(features, wide), axis=1, epsilon=SHORTEST)

    def products(self, features: Any, weight: Any, bias: Any) -> Any:
        """Return the logits of classes with these rows, or cosines."""
        wide = wide_dtype(features.dtype, weight.dtype)
        vectors = _cast(weight, wide)
        if self.normalize:
            vectors = paddle.nn.functional.normalize(vectors, axis=1, epsilon=SHORTEST)
        logits = paddle.matmul(_cast(features, wide), vectors, transpose_y=True)
        if bias is not None:
            logits = logits + _cast(bias, wide)
        return self.without_phantom(logits)

    def without_phantom(self, logits: Any) -> Any:
        """Return the logits; for an empty shard, that of its only row, which is no class."""
        return logits if self.n_rows else paddle.scale(logits, 0.0, _NO_CLASS)

    def check_ranks(self) -> None:
        """Raise InvalidArgumentError unless the shards are those of the present ranks, and lie in CPU memory."""
        if paddle.in_dynamic_mode() and not self.weight.place.is_cpu_place():
            raise InvalidArgumentError(
                f"a ShardedLinear must stay in CPU memory, but its weight is on {self.weight.place}"
            )
        now = _basics.size(), _basics.rank()
        if now != (self.shards.n_shards, self.shard):
            raise InvalidArgumentError(
                f"this is shard {self.shard} of {self.shards.n_shards} of a ShardedLinear, but this is now rank "
                f"{now[1]} of {now[0]}: create the layer again, and load_dense() the result of an earlier to_dense()"
            )

    # --- all classes

    def to_dense(self, scope: Any = None) -> tuple[Any, Any]:
        """Return the weight and the bias of all classes, as NumPy arrays, on every rank. All ranks must call it.

        Args:
            scope: where a program's parameters are; by default Paddle's global one.
        """
        self.check_ranks()
        whole = [
            None
            if each is None
            else allgather_numpy(_value(each, scope)[: self.n_rows], name=f"{self.label}.dense.{index}")
            for index, each in enumerate((self.weight, self.bias))
        ]
        return whole[0], whole[1]

    def load_dense(self, weight: Any, bias: Any = None, scope: Any = None) -> None:
        """Take this rank's classes from the weight and the bias of all.

        Args:
            weight: what NumPy takes, a row for each class.
            bias: the same for a layer with one.
            scope: as of `to_dense()`; the startup program has run in it.

        Raises:
            InvalidArgumentError: (a ValueError) they have other shapes, or there is a bias where the layer has none.
        """
        given = np.shape(weight)
        if given != (self.n_classes, self.in_features) or (bias is None) is not (self.bias is None):
            raise InvalidArgumentError(
                f"load_dense() takes a weight of shape {(self.n_classes, self.in_features)}, and a bias if the layer "
                f"has one; got {given}, {'no bias' if bias is None else 'a bias'}"
            )
        if not self.n_rows:
            return
        _set(self.weight, np.asarray(weight)[self.first : self.end], scope)
        if self.bias is not None:
            _set(self.bias, np.asarray(bias)[self.first : self.end], scope)

    def extra_repr(self) -> str:
        """Return the arguments in the layer's representation."""
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes} ({self.first} to {self.end - 1} here), "
            f"bias={self.bias is not None}, normalize={self.normalize}, sample_rate={self.sample_rate}"
        )


def _cast(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else paddle.cast(x, dtype)


def _tensor_in(scope: Any, name: str) -> Any:
    found = (scope or paddle.static.global_scope()).find_var(name)
    if found is None:
        raise InvalidArgumentError(f"{name} is not in the scope: run the startup program before")
    return found.get_tensor()


def _value(parameter: Any, scope: Any) -> Any:
    if paddle.in_dynamic_mode():
        return cast(Any, parameter).numpy()
    return np.array(_tensor_in(scope, parameter.name))


def _set(parameter: Any, value: Any, scope: Any) -> None:
    if paddle.in_dynamic_mode():
        parameter.set_value(np.ascontiguousarray(value))
        return
    tensor = _tensor_in(scope, parameter.name)
    tensor.set(np.ascontiguousarray(value).astype(np.array(tensor).dtype), paddle.CPUPlace())
