"""The softmax cross entropy over classes that are sharded over the ranks.

Each rank computes the logits of its classes for the samples of all ranks, a piece of the classes at a time, and from
them three numbers a sample: the largest logit, the sum of exponentials, and the logit of the sample's own class. These
are gathered, and all ranks combine them in rank order. Labels are positions in a shard: the only table of classes times
samples is the piece that is being computed. The backward pass recomputes the pieces, unless there is only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch.autograd.function import once_differentiable

from ciranda._frameworks.margins import Margins
from ciranda._frameworks.sampling import sample
from ciranda._frameworks.shards import Batches
from ciranda.errors import InvalidArgumentError
from ciranda.torch import ops
from ciranda.torch.nn.batches import gather
from ciranda.torch.nn.sharded_linear import ShardedLinear, wide_dtype
from ciranda.torch.sparse_rows import coalesced

Tensor = torch.Tensor
Reduction = Literal["mean", "global_mean", "sum", "none"]

#: How many logits a piece has, at most, and how many numbers its classes.
_PIECE = 1 << 22
_SHORTEST = 1e-12  # as torch.nn.functional.normalize has


def sharded_softmax_cross_entropy(
    features: Tensor,
    labels: Tensor,
    layer: ShardedLinear,
    *,
    m1: float = 1.0,
    m2: float = 0.0,
    m3: float = 0.0,
    scale: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the loss of this rank's samples, over the classes of all ranks.

    All ranks must call it, with batches that may differ in size or be empty, and run the backward pass. The objective
    is the mean of their losses (see `ShardedLinear`).

    Args:
        features: of this rank's samples, a row for each, of any floating-point dtype; float16 and bfloat16 are computed
            in float32.
        labels: their classes, whole numbers of any dtype, counted over all ranks' classes.
        layer: the layer with the classes.
        m1: multiplies the angle between a sample and its class. Margins need a layer with `normalize=True`.
        m2: is added to that angle.
        m3: is subtracted from the cosine of the angle.
        scale: multiplies all logits.
        reduction: "mean" of this rank's samples, 0 without samples; their "sum"; "none", a loss for each sample; or
            "global_mean": the mean over the ranks is the mean over all ranks' samples.

    Returns:
        The loss, in float32, or float64 if features or layer are.

    Raises:
        InvalidArgumentError: (a ValueError) margins or reduction are out of range; or, on all ranks, one gives labels
            that are not classes, or features of another width.
        MismatchError: ranks have joined, or their features have different dtypes.
    """
    margins = Margins(m1, m2, m3, scale)
    if not margins.are_none and not layer.normalize:
        raise InvalidArgumentError("margins are of angles: they need a ShardedLinear with normalize=True")
    if reduction not in ("mean", "global_mean", "sum", "none"):
        raise InvalidArgumentError(f"reduction must be 'mean', 'global_mean', 'sum' or 'none'; got {reduction!r}")
    layer.check()
    with torch.autocast("cpu", enabled=False):
        everyones, all_labels, batches = gather(
            features, labels, layer.in_features, f"{layer.name}.loss", layer.process_set, layer.prepared
        )
        step = _plan(layer, all_labels, batches, margins)
        losses = cast(Tensor, _Loss.apply(everyones, layer.weight, layer.bias, step))  # type: ignore[no-untyped-call]
    if reduction == "none":
        return losses
    total = losses.sum()
    if reduction == "mean":
        return total / max(len(losses), 1)
    return total * (len(batches.sizes) / max(batches.total, 1)) if reduction == "global_mean" else total


@dataclass
class _Step:
    """The parameters of the computation, except the tensors."""

    layer: ShardedLinear
    batches: Batches
    margins: Margins
    #: The places in the shard of the classes that take part, in order; None where all do.
    chosen: Tensor | None
    #: The samples whose class is here, and its place among those that take part.
    samples: Tensor
    places: Tensor

    def pieces(self, n_classes: int) -> Iterator[slice]:
        """Yield the classes of each piece."""
        length = max(1, _PIECE // max(self.batches.total, self.layer.in_features, 1))
        for start in range(0, n_classes, length):
            yield slice(start, min(start + length, n_classes))

    def targets(self, piece: slice) -> tuple[Tensor, Tensor]:
        """Return the samples whose class is in the piece, and its column there."""
        is_here = (self.places >= piece.start) & (self.places < piece.stop)
        return self.samples[is_here], self.places[is_here] - piece.start


def _plan(layer: ShardedLinear, all_labels: Tensor, batches: Batches, margins: Margins) -> _Step:
    labels = all_labels.numpy()
    batches.check(labels, layer.shards)
    samples, places = layer.shards.targets(labels, layer.shard)
    if not (layer.training and layer.sample_rate < 1):
        return _Step(layer, batches, margins, None, torch.from_numpy(samples), torch.from_numpy(places))
    nth = int(layer.n_drawn)
    layer.n_drawn += 1
    chosen = torch.from_numpy(sample(layer.end - layer.first, places, layer.sample_rate, layer.seed, nth, layer.shard))
    own = torch.from_numpy(places)
    return _Step(layer, batches, margins, chosen, torch.from_numpy(samples), torch.searchsorted(chosen, own))


class _Rows:
    """The classes in use, a piece at a time, in the dtype of the computation."""

    def __init__(self, weight: Tensor, bias: Tensor | None, step: _Step, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._step, self._dtype = weight, bias, step, dtype
        self.n_classes = len(weight if step.chosen is None else step.chosen)

    def _of(self, tensor: Tensor, piece: slice) -> Tensor:
        chosen = self._step.chosen
        return (tensor[piece] if chosen is None else tensor[chosen[piece]]).to(self._dtype)

    def vectors(self, piece: slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights, and their divisors."""
        rows = self._of(self._weight, piece)
        if not self._step.layer.normalize:
            return rows, None
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(_SHORTEST)
        return rows / lengths, lengths

    def logits(self, features: Tensor, vectors: Tensor, piece: slice) -> tuple[Tensor, Tensor]:
        """Return the logits, and the slopes of those of the samples' own classes."""
        found = features @ vectors.T
        if self._bias is not None:
            found += self._of(self._bias, piece)
        samples, columns = self._step.targets(piece)
        targets, slopes = self._step.margins.target(found[samples, columns])
        found *= self._step.margins.scale
        found[samples, columns] = targets
        return found, slopes


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, step: _Step) -> Tensor:
        dtype = wide_dtype(features.dtype, weight.dtype)
        wide = features.to(dtype)
        rows = _Rows(weight, bias, step, dtype)
        greatest = wide.new_full((len(wide),), -torch.inf)
        sums, targets = wide.new_zeros(len(wide)), wide.new_zeros(len(wide))
        logits = slopes = None
        for piece in step.pieces(rows.n_classes):
            vectors, _ = rows.vectors(piece)
            logits, slopes = rows.logits(wide, vectors, piece)
            samples, columns = step.targets(piece)
            targets[samples] = logits[samples, columns]
            more = torch.maximum(greatest, logits.amax(1))
            sums = sums * (greatest - more).exp() + (logits - more[:, None]).exp_().sum(1)
            greatest = more
        mine = torch.stack([greatest, sums, targets], 1)
        together, targets = _combined(mine, step)
        is_one_piece = logits is not None and logits.shape[1] == rows.n_classes
        ctx.kept = (logits, slopes) if is_one_piece else None
        ctx.step = step
        ctx.save_for_backward(features, weight, bias, together)
        own = step.batches.mine
        return (together[own] - targets[own]).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        features, weight, bias, together = ctx.saved_tensors
        step: _Step = ctx.step
        with torch.autocast("cpu", enabled=False):
            name = f"{step.layer.name}.loss.gradient"
            gradients = ops.allgather(gradient.contiguous(), name=name, process_set=step.layer.process_set)
            back = _Backward(features, weight, bias, step, ctx.needs_input_grad)
            kept, ctx.kept = ctx.kept, None
            for piece in step.pieces(back.rows.n_classes):
                back.add(piece, together.to(gradients.dtype), gradients, kept)
            return back.of_features, back.of_weight(), back.of_bias(), None


def _combined(mine: Tensor, step: _Step) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the sum of all ranks' exponentials, and the logits of the samples' classes."""
    name, process_set = f"{step.layer.name}.loss.sums", step.layer.process_set
    everyones = ops.allgather(mine, name=name, process_set=process_set).double()
    greatest, sums, targets = everyones.view(step.layer.shards.n_shards, len(mine), 3).unbind(2)
    most = greatest.amax(0)
    return most + (sums * (greatest - most).exp()).sum(0).log(), targets.sum(0)


class _Backward:
    """The gradients, piece by piece; for the parameters, of the mean of all ranks' losses."""

    def __init__(
        self, features: Tensor, weight: Tensor, bias: Tensor | None, step: _Step, needed: tuple[bool, ...]
    ) -> None:
        dtype = wide_dtype(features.dtype, weight.dtype)
        self._features, self._weight, self._bias, self._step = features.to(dtype), weight, bias, step
        self.rows = _Rows(weight, bias, step, dtype)
        self.of_features = torch.zeros_like(self._features) if needed[0] else None
        n_classes = self.rows.n_classes
        self._of_rows = weight.new_empty(n_classes, weight.shape[1]) if needed[1] else None
        self._of_numbers = bias.new_empty(n_classes) if needed[2] and bias is not None else None

    def add(self, piece: slice, together: Tensor, gradients: Tensor, kept: tuple[Tensor, Tensor] | None) -> None:
        step = self._step
        vectors, lengths = self.rows.vectors(piece)
        logits, slopes = self.rows.logits(self._features, vectors, piece) if kept is None else kept
        samples, columns = step.targets(piece)
        by_logit = logits.sub_(together[:, None]).exp_()
        by_logit *= gradients[:, None]
        of_targets = (by_logit[samples, columns] - gradients[samples]) * slopes
        by_logit *= step.margins.scale
        by_logit[samples, columns] = of_targets
        if self.of_features is not None:
            self.of_features.addmm_(by_logit, vectors)
        by_logit /= step.layer.shards.n_shards
        if self._of_rows is not None:
            by_vector = by_logit.T @ self._features
            if lengths is not None:
                by_vector -= vectors * (vectors * by_vector).sum(1, keepdim=True)
                by_vector /= lengths
            self._of_rows[piece] = by_vector.to(self._of_rows.dtype)
        if self._of_numbers is not None:
            self._of_numbers[piece] = by_logit.sum(0).to(self._of_numbers.dtype)

    def of_weight(self) -> Tensor | None:
        """Return the gradient of the weight: sparse, if that was requested and classes were sampled."""
        chosen = self._step.chosen
        if self._of_rows is not None and chosen is not None and self._step.layer.sparse:
            return coalesced(chosen[None], self._of_rows, self._weight.shape)
        return self._placed(self._of_rows, self._weight)

    def of_bias(self) -> Tensor | None:
        """Return the gradient of the bias."""
        return self._placed(self._of_numbers, self._bias)

    def _placed(self, of_chosen: Tensor | None, like: Tensor | None) -> Tensor | None:
        if of_chosen is None or like is None or self._step.chosen is None:
            return of_chosen
        return torch.zeros_like(like).index_copy_(0, self._step.chosen, of_chosen)
