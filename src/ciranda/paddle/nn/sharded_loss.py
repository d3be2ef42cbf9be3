"""The softmax cross entropy over classes that are divided over the ranks.

Each rank computes the logits of its classes for the samples of all ranks. It sends four numbers for each sample: the
greatest logit, the sum of exponentials, the logit of the sample's class, and whether that class is in its shard. Labels
are positions in a shard: nothing is one-hot.
"""

from __future__ import annotations

from typing import Any, Literal

import paddle

from ciranda._frameworks.margins import Margins
from ciranda.errors import InvalidArgumentError
from ciranda.paddle import operators, programs
from ciranda.paddle.nn.batches import Gathered, gather
from ciranda.paddle.nn.pieces import Step, losses_of_all
from ciranda.paddle.nn.sharded_linear import ShardedLinear
from ciranda.paddle.nn.tracing import detached, times, with_gradient_times

Reduction = Literal["mean", "global_mean", "sum", "none"]


def sharded_softmax_cross_entropy(
    features: Any,
    labels: Any,
    layer: ShardedLinear,
    *,
    m1: float = 1.0,
    m2: float = 0.0,
    m3: float = 0.0,
    scale: float = 1.0,
    reduction: Reduction = "mean",
) -> Any:
    """Return the loss of this rank's samples, over the classes of all ranks; in dygraph, or in a program.

    All ranks must call it, with batches that may differ in size or be empty, and make the backward pass. The objective
    is the mean of their losses (see `ShardedLinear`).

    Args:
        features: of this rank's samples, a row for each, of any floating-point dtype. What is float16 or bfloat16 is
            computed in float32.
        labels: their classes, a list of whole numbers of any dtype, counted over all ranks' classes.
        layer: the classes.
        m1: multiplies the angle between a sample and its class. Margins need a layer with `normalize=True`.
        m2: is added to that angle.
        m3: is taken off the cosine of the angle.
        scale: multiplies all logits.
        reduction: "mean" of this rank's samples, 0 where there are none; their "sum"; "none", a loss for each sample;
            or "global_mean": such that the mean over the ranks is the mean over all ranks' samples.

    Returns:
        The loss, in float32, or float64 where features or layer are.

    Raises:
        InvalidArgumentError: (a ValueError) margins or reduction are out of range; or, on all ranks, one gives labels
            that are no classes, or other features than the layer takes. (In programs, `exe.run()` raises what depends
            on the values.)
        MismatchError: ranks have joined.
    """
    margins = Margins(m1, m2, m3, scale)
    if not margins.are_none and not layer.normalize:
        raise InvalidArgumentError("margins are of angles: they need a ShardedLinear with normalize=True")
    if reduction not in ("mean", "global_mean", "sum", "none"):
        raise InvalidArgumentError(f"reduction must be 'mean', 'global_mean', 'sum' or 'none'; got {reduction!r}")
    layer.check_ranks()
    gathered = gather(features, labels, layer)
    if programs.is_value(gathered.features):
        losses = _losses(gathered, layer, margins)
    else:
        losses = losses_of_all(gathered.features, layer.weight, layer.bias, Step.of(gathered, layer, margins))
    if reduction == "none":
        return paddle.gather(losses, gathered.own)
    total = paddle.sum(losses * paddle.cast(gathered.is_mine, losses.dtype))
    counts = paddle.cast(gathered.counts, losses.dtype)
    if reduction == "mean":
        return total / counts[0]
    return total * float(layer.shards.n_shards) / counts[1] if reduction == "global_mean" else total


def _losses(gathered: Gathered, layer: ShardedLinear, margins: Margins) -> Any:
    """Return the losses of all ranks' samples, in a program."""
    logits, targets = _logits(gathered, layer, margins)
    is_here = paddle.cast(gathered.is_here, logits.dtype)
    greatest = detached(paddle.max(logits, axis=1))
    sums = paddle.sum(paddle.exp(logits - paddle.unsqueeze(greatest, 1)), axis=1)
    mine = paddle.stack([greatest, sums, (targets - greatest) * is_here, is_here], axis=1)
    n_shards = layer.shards.n_shards
    # The parameters' gradients are of the mean of the ranks' losses.
    everyones = operators.allgather(with_gradient_times(mine, 1.0 / n_shards))
    table = paddle.reshape(everyones, [n_shards, -1, 4])
    greatest_of, sums_of, targets_of, is_at = (table[:, :, column] for column in range(4))
    most = detached(paddle.max(greatest_of, axis=0))
    above = detached(greatest_of) - most
    # The rank that has the class has already subtracted its own maximum, so no large numbers cancel here.
    return paddle.log(paddle.sum(sums_of * paddle.exp(above), axis=0)) - paddle.sum(
        targets_of + above * detached(is_at), axis=0
    )


def _logits(gathered: Gathered, layer: ShardedLinear, margins: Margins) -> tuple[Any, Any]:
    """Return the logits of this rank's classes that take part, and the logit of each sample's own class."""
    weight, bias = layer.weight, layer.bias
    if gathered.chosen is not None:
        weight = paddle.gather(weight, gathered.chosen)
        bias = None if bias is None else paddle.gather(bias, gathered.chosen)
    products = layer.products(gathered.features, weight, bias)
    own = paddle.gather_nd(products, gathered.places)
    scaled = times(products, margins.scale)
    if margins.are_none:
        return scaled, times(own, margins.scale)
    value, slope = margins.target(detached(own))
    targets = value + slope * (own - detached(own))
    moved = (targets - times(own, margins.scale)) * paddle.cast(gathered.is_here, own.dtype)
    return paddle.scatter_nd_add(scaled, gathered.places, moved), targets
