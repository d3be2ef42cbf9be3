"""Training in MXNet that starts again from its last commit when a collective has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import mxnet as mx
from mxnet.gluon import ParameterDict, Trainer

from ciranda._frameworks import elastic
from ciranda._frameworks.objects import broadcast_object
from ciranda._frameworks.sampler import ElasticIndices
from ciranda._frameworks.states import HandledState, SamplerStateHandler, StateHandler
from ciranda.mxnet.failures import as_ciranda_error
from ciranda.mxnet.parameters import broadcast_parameters

__all__ = ["MXNetState", "run"]

Result = TypeVar("Result")


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`, which is called again, on all ranks, when a collective has failed on any.

    Before each call the state is made that of rank 0. Between calls, all ranks have gone back to their last
    `state.commit()` and formed a new circle, of the same processes. See `ciranda.elastic`.
    """
    return elastic.run(func, as_ciranda_error)


class ParametersHandler(StateHandler):
    """For the parameters of a net, of which some may not be initialized yet."""

    def __init__(self, params: ParameterDict) -> None:
        super().__init__(params)
        self.save()

    def save(self) -> None:
        """Remember what is initialized."""
        there = {name: param for name, param in self.value.items() if param._data is not None}
        self._saved = {name: param.data().copy() for name, param in there.items()}
        mx.nd.waitall()  # what has failed must not be saved

    def restore(self) -> None:
        """Bring back what was saved last."""
        for name, array in self._saved.items():
            param = self.value[name]
            # Not into the arrays, which may have failed with the circle.
            param._load_init(array, None) if param._data is None else param._init_impl(array, param.list_ctx())

    def sync(self) -> None:
        """Give every rank those of rank 0."""
        broadcast_parameters(self.value, root_rank=0)
        self.save()


class TrainerHandler(StateHandler):
    """For what the optimizer of a trainer keeps, with its number of updates."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.save()

    def save(self) -> None:
        """Remember it."""
        self._saved = self.value._updaters[0].get_states(dump_optimizer=True)

    def restore(self) -> None:
        """Bring back what was saved last."""
        trainer = self.value
        for updater in trainer._updaters:
            updater.set_states(self._saved)
            updater.optimizer = trainer._updaters[0].optimizer
        trainer._optimizer = trainer._updaters[0].optimizer
        trainer._optimizer.param_dict = dict(enumerate(trainer._params))

    def sync(self) -> None:
        """Give every rank that of rank 0."""
        self.save()
        self._saved = broadcast_object(self._saved)
        self.restore()


_REGISTRY: list[tuple[type, type[StateHandler]]] = [
    (ParameterDict, ParametersHandler),
    (Trainer, TrainerHandler),
    (ElasticIndices, SamplerStateHandler),
]


class MXNetState(HandledState):
    """What survives a failure: parameters, a trainer, and objects. All are attributes.

    Args:
        params: of a Gluon block, `net.collect_params()`.
        trainer: a trainer of them.
        kwargs: further parameters and trainers, and objects that can be copied and pickled.
    """

    def __init__(self, params: ParameterDict | None = None, trainer: Trainer | None = None, **kwargs: Any) -> None:
        given = {"params": params, "trainer": trainer}
        super().__init__(_REGISTRY, {name: value for name, value in given.items() if value is not None}, kwargs)
