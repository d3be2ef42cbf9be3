"""A state of models, optimizers, samplers and plain objects."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ciranda import _basics
from ciranda.elastic import ObjectState
from ciranda.torch.elastic.sampler import ElasticSampler
from ciranda.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class StateHandler:
    """Saves, restores and synchronizes one value of a TorchState. A subclass has `save`, `restore` and `sync`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Remember how the value is."""
        raise NotImplementedError

    def restore(self) -> None:
        """Bring the value back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give every rank what the ranks together have of the value, and save it. A collective."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Take another value in this one's place, and save it."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    """For what has state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_StateDictHandler):
    """For `torch.nn.Module`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def sync(self) -> None:
        """Take rank 0's parameters and buffers."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_StateDictHandler):
    """For `torch.optim.Optimizer`."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    def sync(self) -> None:
        """Take rank 0's state."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_StateDictHandler):
    """For `ElasticSampler`."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)

    def sync(self) -> None:
        """Leave out what any rank has used, in rank 0's epoch."""
        everyones = allgather_object(self.value.state_dict())
        epoch = everyones[0]["epoch"]
        used = [state["processed_indices"] for state in everyones if state["epoch"] == epoch]
        self.value.load_state_dict({"epoch": epoch, "processed_indices": set().union(*used)})
        self.save()


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Return pairs of a type and the handler for its values; the first that fits is taken."""
    return list(_registry)


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replace the pairs that `get_handler_registry()` returns, for states that are made from now on."""
    _registry[:] = registry


def _handlers_for(values: dict[str, Any]) -> dict[str, StateHandler]:
    found = {}
    for name, value in values.items():
        for kind, handler in _registry:
            if isinstance(value, kind):
                found[name] = handler(value)
                break
    return found


class TorchState(ObjectState):
    """What survives a failure of a training in torch.

    Args:
        model: kept by its state_dict().
        optimizer: kept by its state_dict().
        kwargs: further values, which become attributes: models, optimizers and ElasticSamplers in the same way,
            everything else as an object that can be copied and pickled.
    """

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        self._handlers: dict[str, StateHandler] = {}
        handlers = _handlers_for(values)
        plain = {name: value for name, value in kwargs.items() if name not in handlers}
        for name in ("model", "optimizer", *handlers):
            object.__setattr__(self, name, values[name])
        self._handlers = handlers
        super().__init__(lambda value: broadcast_object(value, root_rank=0), _basics.rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = vars(self).get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Remember how everything is."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Go back to what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Give every rank what rank 0 has; of samplers, what the ranks together have. A collective."""
        for name in sorted(self._handlers):
            self._handlers[name].sync()
        super().sync()
