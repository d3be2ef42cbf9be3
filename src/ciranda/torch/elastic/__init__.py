"""Training in torch that starts again from its last commit when a collective has failed.

For example:

    @elastic.run
    def train(state):
        while state.epoch < 10:
            for batch in loader:
                ...
            state.epoch += 1  # training goes on from what is committed
            state.commit()

    train(elastic.TorchState(model, optimizer, epoch=0))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ciranda._frameworks import restarts
from ciranda.torch.elastic.sampler import ElasticSampler
from ciranda.torch.elastic.state import TorchState
from ciranda.torch.failures import as_ciranda_error

__all__ = ["ElasticSampler", "TorchState", "run"]

Result = TypeVar("Result")


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`; it is called again, on all ranks, after a collective has failed on any.

    Before each call all ranks receive rank 0's state. Between calls, all ranks restore their last `state.commit()` and
    form a new world, of the same processes. See `ciranda.elastic`.
    """
    return restarts.run(func, as_ciranda_error)
