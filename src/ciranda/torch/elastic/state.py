"""A state of models, optimizers, samplers and plain objects."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ciranda._frameworks.states import HandledState, SamplerStateHandler, StateHandler
from ciranda.torch.elastic.sampler import ElasticSampler
from ciranda.torch.elastic.snapshots import Snapshot, taken
from ciranda.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class _SnapshotHandler(StateHandler):
    """For objects with a state_dict() of tensors: two snapshots, each written over the one before the last."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._last = Snapshot()
        self._spare: Snapshot | None = None
        self._kept: Snapshot | None = None
        self.save()

    def save(self) -> None:
        snapshot = taken(self.value.state_dict(), over=self._spare)
        self._last, self._spare = snapshot, None if self._last is self._kept else self._last

    def restore(self) -> None:
        # A copy, since an optimizer takes the tensors themselves.
        self.value.load_state_dict(copy.deepcopy(self._last.content))

    def keep(self) -> None:
        """Let no later `save()` overwrite what is saved now."""
        self._kept = self._last

    def release(self) -> None:
        """Let later saves overwrite what was kept, in its turn."""
        if self._spare is None and self._kept is not self._last:
            self._spare = self._kept
        self._kept = None


class ModelStateHandler(_SnapshotHandler):
    """For `torch.nn.Module`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def sync(self) -> None:
        """Receive rank 0's parameters and buffers."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_SnapshotHandler):
    """For `torch.optim.Optimizer`."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    def restore(self) -> None:
        """Go back to what was saved last. Gradients are cleared: those of a failed step are no part of the next."""
        super().restore()
        self.value.zero_grad()

    def sync(self) -> None:
        """Receive rank 0's state."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Return pairs of a type and the handler for its values; the first that matches is used."""
    return list(_registry)


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replace the pairs that `get_handler_registry()` returns, for states that are created afterwards."""
    _registry[:] = registry


class TorchState(HandledState):
    """The state that survives a failure of a training in torch.

    Args:
        model: kept by its state_dict().
        optimizer: kept by its state_dict().
        kwargs: further values, which become attributes: models, optimizers and ElasticSamplers in the same way,
            everything else as an object that can be copied and pickled.
    """

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(_registry, {"model": model, "optimizer": optimizer}, kwargs)
