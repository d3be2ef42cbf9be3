"""The losses of all ranks' samples in dygraph, a piece of the classes at a time.

The logits of a piece are computed, and computed again in the backward pass unless there is only one piece: a rank needs
memory for its shard, the shard's gradient, and a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.autograd import PyLayer

from ciranda._frameworks.margins import Margins
from ciranda._ops import Sum
from ciranda.paddle import ops
from ciranda.paddle.nn.batches import Gathered
from ciranda.paddle.nn.sharded_linear import SHORTEST, ShardedLinear
from ciranda.paddle.nn.tracing import times, wide_dtype
from ciranda.paddle.tensors import new

#: The largest number of logits in a piece, and of weights.
_PIECE = 1 << 22


class _Piece(NamedTuple):
    """Some of the classes."""

    #: Their weights, and the lengths by which these were divided, if they were.
    vectors: Any
    lengths: Any
    logits: Any
    #: The positions of the samples' own classes, their logits, and the slopes of these; None if there are none.
    places: Any
    targets: Any
    slopes: Any


@dataclass(frozen=True)
class Step:
    """The parameters of the computation, without tensors that have gradients."""

    layer: ShardedLinear
    margins: Margins
    #: The samples whose class is in the shard, and the class's positions among those that take part.
    samples: Any
    columns: Any
    chosen: Any

    @staticmethod
    def of(gathered: Gathered, layer: ShardedLinear, margins: Margins) -> Step:
        """Return the step for these samples."""
        samples = np.flatnonzero(gathered.is_here.numpy())
        columns = gathered.places.numpy()[samples, 1]
        return Step(layer, margins, samples, columns, gathered.chosen)

    def slices(self, n_samples: int) -> Iterator[slice]:
        """Yield the ranges of classes that are computed together."""
        n_rows = max(self.layer.n_rows, 1) if self.chosen is None else int(self.chosen.shape[0])
        length = max(1, _PIECE // max(n_samples, self.layer.in_features, 1))
        for start in range(0, n_rows, length):
            yield slice(start, min(start + length, n_rows))

    def rows(self, tensor: Any, piece: slice, dtype: Any) -> Any:
        """Return the rows of some classes, of weight or bias."""
        found = tensor[piece] if self.chosen is None else paddle.gather(tensor, self.chosen[piece])
        return found.astype(dtype)

    def compute(self, features: Any, weight: Any, bias: Any, piece: slice) -> _Piece:
        """Return the logits of some classes for all samples."""
        vectors, lengths = self.rows(weight, piece, features.dtype), None
        if self.layer.normalize:
            lengths = paddle.norm(vectors, axis=1, keepdim=True).clip(min=SHORTEST)
            vectors = vectors / lengths
        products = paddle.matmul(features, vectors, transpose_y=True)
        if bias is not None:
            products = products + self.rows(bias, piece, features.dtype)
        products = self.layer.without_phantom(products)
        logits = times(products, self.margins.scale)
        is_here = (self.columns >= piece.start) & (self.columns < piece.stop)
        if not is_here.any():
            return _Piece(vectors, lengths, logits, None, None, None)
        numbers = np.stack([self.samples[is_here], self.columns[is_here] - piece.start], axis=1)
        places = paddle.to_tensor(numbers)
        own = paddle.gather_nd(products, places)
        targets, slopes = self.margins.target(own)
        if not self.margins.are_none:
            logits = paddle.scatter_nd_add(logits, places, targets - times(own, self.margins.scale))
        return _Piece(vectors, lengths, logits, places, targets, slopes)


def losses_of_all(features: Any, weight: Any, bias: Any, step: Step) -> Any:
    """Return the losses of all ranks' samples; the gradients are of the mean of the ranks' sums of these."""
    return _Losses.apply(features, weight, bias, step)


class _Losses(PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, features: Any, weight: Any, bias: Any, step: Step) -> Any:
        dtype = wide_dtype(features.dtype, weight.dtype)
        wide = features.astype(dtype)
        n_samples = int(wide.shape[0])
        greatest = paddle.full([n_samples], -3e38, dtype)
        sums, targets, is_here = (paddle.zeros([n_samples], dtype) for _ in range(3))
        kept = None
        slices = list(step.slices(n_samples))
        for piece in slices:
            kept = step.compute(wide, weight, bias, piece)
            most = paddle.maximum(greatest, kept.logits.max(axis=1))
            sums = sums * (greatest - most).exp() + (kept.logits - most.unsqueeze(1)).exp().sum(axis=1)
            greatest = most
            if kept.places is not None:
                of_samples = kept.places[:, :1]
                targets = paddle.scatter_nd_add(targets, of_samples, kept.targets)
                is_here = paddle.scatter_nd_add(is_here, of_samples, paddle.ones_like(kept.targets))
        mine = paddle.stack([greatest, sums, (targets - greatest) * is_here, is_here], axis=1)
        n_shards, name = step.layer.shards.n_shards, f"{step.layer.label}.loss.sums"
        table = ops.allgather_async(mine, name).wait().reshape([n_shards, n_samples, 4])
        most = table[:, :, 0].max(axis=0)
        above = table[:, :, 0] - most
        total = (table[:, :, 1] * above.exp()).sum(axis=0).log()
        ctx.kept = kept if len(slices) == 1 else None
        ctx.given, ctx.step, ctx.most, ctx.total = (features, weight, bias), step, most, total
        ctx.needed = [each is not None and not each.stop_gradient for each in (features, weight, bias)]
        return total - (table[:, :, 2] + above * table[:, :, 3]).sum(axis=0)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        step: Step = ctx.step
        features, weight, bias = ctx.given
        name = f"{step.layer.label}.loss.gradient_of_losses"
        total = ops.allreduce_async(gradient, name=name, op=Sum).wait()
        back = _Back(features.astype(gradient.dtype), weight, bias, step, ctx.needed)
        kept, ctx.kept = ctx.kept, None
        for piece in step.slices(int(features.shape[0])):
            back.add(piece, ctx.most, ctx.total, total / float(step.layer.shards.n_shards), kept)
        found = back.gradients()
        return tuple(each for each, given in zip(found, ctx.given, strict=True) if given is not None)


class _Back:
    """The gradients, piece by piece."""

    def __init__(self, features: Any, weight: Any, bias: Any, step: Step, needed: list[bool]) -> None:
        self._features, self._weight, self._bias, self._step = features, weight, bias, step
        n_chosen = int((weight if step.chosen is None else step.chosen).shape[0])
        self._of_features = paddle.zeros_like(features) if needed[0] else None
        self._of_rows = new([n_chosen, weight.shape[1]], weight) if needed[1] else None
        self._of_numbers = new([n_chosen], weight) if needed[2] else None

    def add(self, piece: slice, most: Any, total: Any, gradients: Any, kept: _Piece | None) -> None:
        step = self._step
        found = step.compute(self._features, self._weight, self._bias, piece) if kept is None else kept
        shares = (found.logits - most.unsqueeze(1) - total.unsqueeze(1)).exp() * gradients.unsqueeze(1)
        by_product = times(shares, step.margins.scale)
        if found.places is not None:
            own = paddle.gather_nd(shares, found.places)
            of_own = (own - paddle.gather(gradients, found.places[:, 0])) * found.slopes
            by_product = paddle.scatter_nd_add(by_product, found.places, of_own - times(own, step.margins.scale))
        if self._of_features is not None:
            self._of_features = self._of_features + paddle.matmul(by_product, found.vectors)
        if self._of_rows is not None:
            by_vector = paddle.matmul(by_product, self._features, transpose_x=True)
            if found.lengths is not None:
                along = (found.vectors * by_vector).sum(axis=1, keepdim=True)
                by_vector = (by_vector - found.vectors * along) / found.lengths
            self._of_rows[piece] = by_vector.astype(self._weight.dtype)
        if self._of_numbers is not None:
            self._of_numbers[piece] = by_product.sum(axis=0).astype(self._weight.dtype)

    def gradients(self) -> tuple[Any, Any, Any]:
        """Return the gradients of features, weight and bias; None for each that is not needed."""
        return self._of_features, self._placed(self._of_rows), self._placed(self._of_numbers)

    def _placed(self, of_chosen: Any) -> Any:
        if of_chosen is None or self._step.chosen is None:
            return of_chosen
        shape = [self._weight.shape[0], *of_chosen.shape[1:]]
        return paddle.scatter(paddle.zeros(shape, of_chosen.dtype), self._step.chosen, of_chosen)
