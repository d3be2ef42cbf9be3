"""Training in torch that starts again from its last commit when a collective has failed.

@elastic.run
def train(state):
    for state.epoch in range(state.epoch, 10):
        for batch in loader:
            ...
        state.commit()

train(elastic.TorchState(model, optimizer, epoch=0))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ciranda._frameworks import elastic
from ciranda.torch.elastic.sampler import ElasticSampler
from ciranda.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]

Result = TypeVar("Result")


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`, which is called again, on all ranks, when a collective has failed on any.

    Before each call the state is made that of rank 0. Between calls, all ranks have gone back to their last
    `state.commit()` and formed a new world, of the same processes. See `ciranda.elastic`.
    """
    return elastic.run(func)
