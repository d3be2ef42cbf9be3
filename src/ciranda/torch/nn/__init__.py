"""Layers whose parameters are sharded over the ranks."""

from ciranda.torch.nn.sharded_linear import ShardedLinear
from ciranda.torch.nn.sharded_loss import sharded_softmax_cross_entropy
from ciranda.torch.uncompiled import leave_uncompiled

__all__ = ["ShardedLinear", "sharded_softmax_cross_entropy"]

leave_uncompiled([sharded_softmax_cross_entropy, *vars(ShardedLinear).values()])
