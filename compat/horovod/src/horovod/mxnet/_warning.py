"""Ciranda's trainer and optimizer, which warn where ranks begin with different parameters, in place of an error."""

from __future__ import annotations

import ciranda.mxnet as base


class DistributedTrainer(base.DistributedTrainer):
    __doc__ = base.DistributedTrainer.__doc__
    _only_warns = True


class DistributedOptimizer(base.DistributedOptimizer):
    __doc__ = base.DistributedOptimizer.__doc__
    _only_warns = True
