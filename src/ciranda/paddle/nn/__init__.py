"""Layers whose parameters are divided over the ranks, in dygraph and in programs."""

from ciranda.paddle.nn.sharded_linear import ShardedLinear
from ciranda.paddle.nn.sharded_loss import sharded_softmax_cross_entropy

__all__ = ["ShardedLinear", "sharded_softmax_cross_entropy"]
