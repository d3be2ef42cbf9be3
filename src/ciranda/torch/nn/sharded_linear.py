"""A fully connected layer for very many classes: every rank has some of them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ciranda import _basics
from ciranda._frameworks.sampling import check_rate
from ciranda._frameworks.shards import Shards
from ciranda._numbering import Numbering
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch import ops
from ciranda.torch.nn.batches import gather

Tensor = torch.Tensor

_layers = Numbering()


class ShardedParameter(nn.Parameter):
    """A parameter that is local to a rank; copies and pickles of it too."""

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> ShardedParameter:
        """Mark `data`."""
        made = super().__new__(cls, data, requires_grad)
        made.is_distributed = True  # type: ignore[assignment, method-assign]
        return made


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return gradient * ctx.factor, None


class ShardedLinear(nn.Module):
    """`torch.nn.Linear(in_features, n_classes)` whose classes are divided over the ranks.

    Rank r has the rows of the weight, and of the bias, of shard r: n consecutive shards, whose sizes differ by at most
    one. They are marked (`is_distributed`), so that `DistributedOptimizer`, `LocalSGD` and the broadcasts of parameters
    and optimizer state leave them alone. Train it with `sharded_softmax_cross_entropy()`. Each rank saves and loads a
    state_dict of its own.

    The objective is the mean of all ranks' losses. The gradient of a shard is that of the objective: complete, and not
    to be averaged. The gradient of a rank's features is that of the sum of the losses, n times as much: averaging the
    gradients of the layers below, as `DistributedOptimizer` does, gives the objective's gradient there.

    Args:
        in_features: the number of features of each sample.
        n_classes: the number of classes of all ranks together.
        bias: whether each class has a bias.
        normalize: take the cosine of the angle between sample and class in place of the product. Has no bias.
        sample_rate: the share of a shard's classes that a training step uses (PartialFC): those of the batch always,
            others at random. In evaluation all are used.
        seed: of the samples; the same on all ranks.
        sparse: if classes are sampled, give the weight a sparse gradient of their rows, for optimizers that accept it.
        process_set: the ranks that have the classes. All ranks must create the same layers in the same order.
        dtype: of the parameters; by default torch's default dtype.

    Raises:
        InvalidArgumentError: (a ValueError) an argument is out of range; or this rank is not in the process set.
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
        sparse: bool = False,
        process_set: ProcessSet = global_process_set,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _basics.engine()
        id_of(process_set)
        shard = process_set.rank()
        if shard is None:
            raise InvalidArgumentError(f"rank {_basics.rank()} is not in the layer's {process_set}")
        if bias and normalize:
            raise InvalidArgumentError("a layer with normalize=True has no bias: its logits are cosines")
        self.in_features, self.n_classes, self.normalize = in_features, n_classes, normalize
        self.sample_rate, self.seed, self.sparse = check_rate(sample_rate), seed, sparse
        self.process_set = process_set
        self.shards = Shards(n_classes, cast(int, process_set.size()))
        #: The number of this rank's shard, its first class, and the one behind its last.
        self.shard = shard
        self.first, self.end = self.shards.bounds(shard)
        self._name = f"ShardedLinear.{_layers.next(process_set)}"
        size = self.end - self.first
        self.weight = ShardedParameter(torch.empty(size, in_features, dtype=dtype, device="cpu"))
        self.bias = ShardedParameter(torch.empty(size, dtype=dtype, device="cpu")) if bias else None
        #: How often classes were sampled.
        self.register_buffer("n_drawn", torch.zeros((), dtype=torch.int64, device="cpu"))
        self.n_drawn: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values from torch's random numbers, as `torch.nn.Linear` has; other ones on each rank."""
        # Ranks with the same seed would have the same values, so that classes of different shards would be twins.
        seed = int(torch.randint(1 << 62, (), device="cpu")) ^ (self.shard * 0x9E3779B97F4A7C15 & (1 << 62) - 1)
        generator = torch.Generator().manual_seed(seed)
        bound = self.in_features**-0.5
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of this rank's classes, a column for each, for the samples of all ranks, in rank order.

        All ranks must call it, with batches that may differ in size or be empty, and run the backward pass too.
        """
        self.check()
        everyones, _, _ = gather(
            features, None, self.in_features, f"{self._name}.forward", self.process_set, self.prepared
        )
        scaled = _ScaledGradient.apply
        weight = cast(Tensor, scaled(self.weight, 1 / self.shards.n_shards))  # type: ignore[no-untyped-call]
        if self.normalize:
            return everyones @ functional.normalize(weight.to(everyones.dtype)).T
        logits = everyones.to(weight.dtype) @ weight.T
        if self.bias is not None:
            logits = logits + scaled(self.bias, 1 / self.shards.n_shards)  # type: ignore[no-untyped-call]
        return logits

    def prepared(self, features: Tensor) -> Tensor:
        """Return the features to gather: unchanged, or divided by their length."""
        if not self.normalize:
            return features
        return functional.normalize(features.to(wide_dtype(features.dtype, self.weight.dtype)))

    def check(self) -> None:
        """Raise InvalidArgumentError unless the shards are those of the present ranks, and lie in CPU memory."""
        if self.weight.device.type != "cpu":
            raise InvalidArgumentError(
                f"a ShardedLinear must stay in CPU memory, but its weight is on device {self.weight.device}"
            )
        now = self.process_set.size(), self.process_set.rank()
        if now != (self.shards.n_shards, self.shard):
            raise InvalidArgumentError(
                f"this is shard {self.shard} of {self.shards.n_shards} of a ShardedLinear, but this is now rank "
                f"{now[1]} of {now[0]}: create the layer again, and load_dense() the result of an earlier to_dense()"
            )

    @property
    def name(self) -> str:
        """The name that identifies the layer on all ranks."""
        return self._name

    # --- all classes

    def to_dense(self) -> tuple[Tensor, Tensor | None]:
        """Return the weight and the bias of all classes, on every rank. All ranks must call it."""
        self.check()
        with torch.no_grad():
            parts = [each.detach() for each in (self.weight, self.bias) if each is not None]
            whole = ops.grouped_allgather(parts, name=f"{self._name}.dense", process_set=self.process_set)
        return whole[0], whole[1] if self.bias is not None else None

    def load_dense(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Take this rank's classes from the weight and the bias of all.

        Raises:
            InvalidArgumentError: (a ValueError) they have other shapes, or a bias is given and the layer has none.
        """
        if weight.shape != (self.n_classes, self.in_features) or (bias is None) is not (self.bias is None):
            raise InvalidArgumentError(
                f"load_dense() takes a weight of shape {(self.n_classes, self.in_features)}, and a bias if the layer "
                f"has one; got {tuple(weight.shape)}, {'no bias' if bias is None else 'a bias'}"
            )
        with torch.no_grad():
            self.weight.copy_(weight[self.first : self.end])
            if self.bias is not None and bias is not None:
                self.bias.copy_(bias[self.first : self.end])

    # --- saving

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, _ in self.named_parameters(recurse=False):
            destination[prefix + name].is_distributed = True

    def get_extra_state(self) -> dict[str, int]:
        """Return the shard of a state_dict."""
        return {"n_classes": self.n_classes, "first": self.first, "end": self.end}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Raise InvalidArgumentError if a loaded state_dict has other classes than this rank."""
        mine = self.get_extra_state()
        if state != mine:
            raise InvalidArgumentError(
                f"the state_dict has classes {state['first']} to {state['end'] - 1} of {state['n_classes']}, but this "
                f"rank has {mine['first']} to {mine['end'] - 1} of {mine['n_classes']}: each rank saves and loads its "
                "own; for other numbers of ranks, save what to_dense() returns"
            )

    def extra_repr(self) -> str:
        """Return the layer's representation."""
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes} ({self.first} to {self.end - 1} here), "
            f"bias={self.bias is not None}, normalize={self.normalize}, sample_rate={self.sample_rate}"
        )


def wide_dtype(*dtypes: torch.dtype) -> torch.dtype:
    """Return the dtype of the computation: float64 if any tensor has it, else float32."""
    return torch.float64 if torch.float64 in dtypes else torch.float32
