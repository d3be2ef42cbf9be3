"""Training in MXNet that starts again from its last commit when a collective has failed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import mxnet as mx
from mxnet.gluon import ParameterDict, Trainer

from ciranda import _basics
from ciranda._frameworks import restarts
from ciranda._frameworks.objects import broadcast_object
from ciranda._frameworks.sampler import ElasticIndices
from ciranda._frameworks.states import HandledState, SamplerStateHandler, StateHandler
from ciranda.errors import HorovodInternalError
from ciranda.mxnet.failures import as_ciranda_error
from ciranda.mxnet.parameters import broadcast_parameters, without_broadcast

__all__ = ["MXNetState", "run"]

Result = TypeVar("Result")


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`; it is called again, on all ranks, after a collective has failed on any.

    Before each call all ranks receive rank 0's state. Between calls, all ranks restore their last `state.commit()` and
    form a new world, of the same processes. See `ciranda.elastic`.
    """
    return restarts.run(func, as_ciranda_error)


class ParametersHandler(StateHandler):
    """For the parameters of a net, of which some may not be initialized yet."""

    def __init__(self, params: ParameterDict) -> None:
        super().__init__(params)
        self.save()

    def save(self) -> None:
        """Save the initialized parameters, and the initializers of the others."""
        items = self.value.items()
        saved = {name: param._data[0].copy() for name, param in items if param._data is not None}
        deferred = {name: param._deferred_init for name, param in items if param._data is None}
        mx.nd.waitall()  # a failed operation raises here, before it replaces the last save
        self._saved, self._deferred = saved, deferred

    def restore(self) -> None:
        """Bring back what was saved last."""
        for name, array in self._saved.items():
            param = self.value[name]
            # Into new arrays: the old ones may have failed with the world.
            with without_broadcast(param):
                param._load_init(array, None) if param._data is None else param._init_impl(array, param.list_ctx())
        for name, how in self._deferred.items():
            param = self.value[name]
            param._data = param._grad = None
            param._deferred_init = how

    def sync(self) -> None:
        """Broadcast rank 0's parameters."""
        broadcast_parameters(self.value, root_rank=0)
        self.save()


class TrainerHandler(StateHandler):
    """For the optimizer's state in a trainer, with its number of updates, and for the loss scaler of AMP."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.save()

    def save(self) -> None:
        """Save the optimizer's and the scaler's state."""
        mx.nd.waitall()  # as for parameters
        self._saved = self.value._updaters[0].get_states(dump_optimizer=True), dict(self._scaler())

    def restore(self) -> None:
        """Bring back what was saved last."""
        trainer = self.value
        states, scaler = self._saved
        self._scaler().update(scaler)
        for updater in trainer._updaters:
            updater.set_states(states)
            updater.optimizer = trainer._updaters[0].optimizer
        trainer._optimizer = trainer._updaters[0].optimizer
        trainer._optimizer.param_dict = dict(enumerate(trainer._params))

    def sync(self) -> None:
        """Broadcast rank 0's state."""
        self.save()
        self._saved = broadcast_object(self._saved)
        self.restore()

    def _scaler(self) -> dict[str, Any]:
        """Return the attributes of the loss scaler, all of them numbers; none without AMP."""
        scaler = getattr(self.value, "_amp_loss_scaler", None)
        return {} if scaler is None else vars(scaler)


_REGISTRY: list[tuple[type, type[StateHandler]]] = [
    (ParameterDict, ParametersHandler),
    (Trainer, TrainerHandler),
    (ElasticIndices, SamplerStateHandler),
]


class MXNetState(HandledState):
    """The state that survives a failure: parameters, a trainer, and objects. All are attributes.

    Args:
        params: of a Gluon block, `net.collect_params()`.
        trainer: a trainer of them.
        kwargs: further parameters and trainers, and objects that can be copied and pickled.
    """

    def __init__(self, params: ParameterDict | None = None, trainer: Trainer | None = None, **kwargs: Any) -> None:
        given = {"params": params, "trainer": trainer}
        super().__init__(_REGISTRY, {name: value for name, value in given.items() if value is not None}, kwargs)


def _forget_failures() -> None:
    """Let no operation of a world that has ended raise its error in the next, which would end that too."""
    with suppress(HorovodInternalError):
        mx.nd.waitall()  # raises one error, and forgets all


_basics.between_worlds.append(_forget_failures)
