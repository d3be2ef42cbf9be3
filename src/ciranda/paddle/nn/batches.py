"""Gathers the samples of all ranks for a layer with sharded classes, and returns their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import paddle
from paddle.autograd import PyLayer

from ciranda import _basics
from ciranda._frameworks.sampling import n_sampled, sample
from ciranda._frameworks.shards import PROBLEMS, Batches, Told
from ciranda._ops import Sum
from ciranda.errors import InvalidArgumentError
from ciranda.paddle import operators, ops, programs
from ciranda.paddle.nn.tracing import is_floating, is_whole, wide_dtype, with_gradient_times
from ciranda.paddle.tensors import is_tensor

if TYPE_CHECKING:
    from ciranda.paddle.nn.sharded_linear import ShardedLinear


class Gathered(NamedTuple):
    """The samples of all ranks, in rank order, and their classes in this rank's shard."""

    #: Prepared, a row for each sample. The gradient of a rank's own features is n times that of its rows here.
    features: Any
    #: Row and column of each sample's class among this rank's logits; column 0 where the class is another rank's.
    places: Any
    #: Whether the class is here, and whether the sample is this rank's: 1 or 0 for each.
    is_here: Any
    is_mine: Any
    #: The numbers of this rank's samples.
    own: Any
    #: The number of samples of this rank and of all; at least 1.
    counts: Any
    #: The positions in the shard of the classes that take part; None: all.
    chosen: Any = None


def gather(features: Any, labels: Any, layer: ShardedLinear) -> Gathered:
    """Return the inputs of the loss.

    Raises:
        InvalidArgumentError: the features or labels of a rank are invalid; on all ranks. In programs, `exe.run()`
            raises errors that depend on values.
        MismatchError: ranks have joined.
    """
    if programs.is_value(features) or programs.is_value(labels):
        return _in_program(features, labels, layer)
    everyones, all_labels, batches = _in_dygraph(features, labels, layer)
    batches.check(all_labels, layer.shards)
    samples, columns = layer.shards.targets(all_labels, layer.shard)
    chosen = _sampled(columns, layer)
    places = np.zeros((batches.total, 2), np.int64)
    places[:, 0] = np.arange(batches.total)
    places[samples, 1] = columns if chosen is None else np.searchsorted(chosen, columns)
    is_here, is_mine = np.zeros(batches.total, np.int64), np.zeros(batches.total, np.int64)
    is_here[samples], is_mine[batches.mine] = 1, 1
    own = np.arange(batches.total)[batches.mine]
    counts = np.array([max(len(own), 1), max(batches.total, 1)], np.int64)
    return Gathered(
        everyones,
        paddle.to_tensor(places),
        paddle.to_tensor(is_here),
        paddle.to_tensor(is_mine),
        paddle.to_tensor(own),
        paddle.to_tensor(counts),
        None if chosen is None else paddle.to_tensor(chosen),
    )


def gather_features(features: Any, layer: ShardedLinear) -> Any:
    """Return the features of all ranks, prepared."""
    if programs.is_value(features):
        return _features_in_program(features, layer)
    return _in_dygraph(features, None, layer)[0]


def _is_sampling(layer: ShardedLinear) -> bool:
    return bool(layer.training and layer.sample_rate < 1 and layer.n_rows)


def _sampled(columns: Any, layer: ShardedLinear) -> Any:
    if not _is_sampling(layer):
        return None
    nth, layer.n_drawn = layer.n_drawn, layer.n_drawn + 1
    return sample(layer.n_rows, columns, layer.sample_rate, layer.seed, nth, layer.shard)


# --- dygraph


def _in_dygraph(features: Any, labels: Any, layer: ShardedLinear) -> tuple[Any, Any, Batches]:
    problem = 0
    if _are_features(features, layer):
        prepared = layer.prepared(features)
    else:
        prepared, problem = paddle.zeros([0, layer.in_features], layer.weight.dtype), 1
    mine = np.zeros(0, np.int64)
    if labels is not None:
        if is_tensor(labels) and labels.ndim == 1 and is_whole(labels.dtype):
            mine = labels.numpy().astype(np.int64)
        else:
            problem = problem or 2
    needs_gradient = paddle.is_grad_enabled() and not prepared.stop_gradient
    told = Told(int(prepared.shape[0]), -1 if labels is None else len(mine), needs_gradient, problem)
    name = f"{layer.label}.{'forward' if labels is None else 'loss'}"
    with paddle.no_grad():
        sent = [prepared.detach(), paddle.to_tensor(mine), paddle.to_tensor(np.array([told.row()], np.int64))]
        everyones, all_labels, rows = ops.grouped_allgather(sent, name=name)
    batches = Batches(rows.numpy().tolist(), _basics.rank(), _basics.size(), layer.in_features)
    if batches.needs_gradient and paddle.is_grad_enabled():
        # Also if only other ranks need gradients: all ranks make the backward pass.
        linked = prepared
        if linked.stop_gradient:
            linked = prepared.detach()
            linked.stop_gradient = False
        everyones = _Linked.apply(linked, _Link(everyones, batches, name))
    return everyones, all_labels.numpy(), batches


def _are_features(features: Any, layer: ShardedLinear) -> bool:
    return (
        is_tensor(features)
        and is_floating(features.dtype)
        and features.ndim == 2
        and int(features.shape[1]) == layer.in_features
    )


@dataclass(frozen=True)
class _Link:
    """The gathered tensors. Paddle does not search it, as it does tuples, for variables of the backward pass."""

    everyones: Any
    batches: Batches
    name: str


class _Linked(PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, features: Any, link: _Link) -> Any:
        ctx.dtype, ctx.batches, ctx.name = features.dtype, link.batches, link.name
        return link.everyones.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        batches: Batches = ctx.batches
        n_ranks = len(batches.sizes)
        if not batches.are_even:
            # Every rank gets the same number of rows: short batches are padded.
            given = gradient.numpy()
            padded = np.zeros((n_ranks, batches.largest, given.shape[1]), given.dtype)
            for rank, size in enumerate(batches.sizes):
                padded[rank, :size] = given[batches.part(rank)]
            gradient = paddle.to_tensor(padded.reshape(n_ranks * batches.largest, -1))
        mine = ops.reducescatter(gradient, op=Sum, name=f"{ctx.name}.gradient")
        n_mine = batches.mine.stop - batches.mine.start
        return (mine[:n_mine] * float(n_ranks)).astype(ctx.dtype)


# --- programs


def _features_in_program(features: Any, layer: ShardedLinear) -> Any:
    shape = list(getattr(features, "shape", []))
    if not programs.is_value(features) or not is_floating(features.dtype) or shape[1:] != [layer.in_features]:
        raise InvalidArgumentError(f"sharded layer: {PROBLEMS[0].format(n_features=layer.in_features)}; got {shape}")
    everyones = operators.allgather(layer.prepared(features))
    return with_gradient_times(_widened(everyones, layer), float(layer.shards.n_shards))


def _widened(x: Any, layer: ShardedLinear) -> Any:
    """Return `x` in the dtype of the computation: half precision is sent, but CPUs have few operators for it."""
    wide = wide_dtype(x.dtype, layer.weight.dtype)
    return x if x.dtype == wide else paddle.cast(x, wide)


def _in_program(features: Any, labels: Any, layer: ShardedLinear) -> Gathered:
    shape = list(getattr(labels, "shape", []))
    if not programs.is_value(labels) or not is_whole(labels.dtype) or len(shape) != 1:
        raise InvalidArgumentError(f"sharded layer: {PROBLEMS[1]}; got {shape}")
    everyones = _features_in_program(features, layer)
    rest = operators.shard_labels(
        paddle.cast(labels, "int64"),
        paddle.cast(paddle.shape(_widened(features, layer)), "int64"),
        layer.first,
        layer.end,
        layer.n_classes,
        layer.shards.n_shards,
    )
    gathered = Gathered(everyones, *rest)
    if not _is_sampling(layer):
        return gathered
    name, n_wanted = f"{layer.label}.sample", n_sampled(layer.n_rows, layer.sample_rate)
    chosen, places = operators.sample_labels(
        gathered.places, gathered.is_here, name, layer.n_rows, n_wanted, layer.seed, layer.shard
    )
    return gathered._replace(places=places, chosen=chosen)
