"""Updates that go on beside the next forward pass, for DistributedOptimizer(overlap_forward=model).

`step()` then waits for no gradient. A module's parameters are updated right before the module's own next forward pass,
while what later modules need still travels; and what the first modules need travels first, although the backward pass
has computed it last. The update is the one that `step()` would have made: the same gradients, with the learning rates
of that time. ByteScheduler (Peng et al., 2019) calls this crossing the global barrier.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from ciranda.errors import HorovodInternalError

Tensor = torch.Tensor
#: Makes the updates of these groups, in this order.
Settle = Callable[[list[int]], None]


class ForwardOverlap:
    """Which groups of parameters still wait for their update, and before whose forward pass it is due.

    Not every module is called to use its parameters: `nn.MultiheadAttention` reads those of the layer that it ends
    with. So the first forward pass shows which modules are called; what belongs to others is due with the next of those
    around them. Until then nothing is put off.
    """

    def __init__(self, model: nn.Module, settle: Settle) -> None:
        """`settle` is a method, whose owner is not kept alive."""
        self._model = model
        self._settle = weakref.WeakMethod(settle)
        self._groups: dict[Tensor, int] = {}
        #: By module, the groups that its forward pass reads; None until a forward pass has shown them.
        self._due: dict[nn.Module, set[int]] | None = None
        #: The modules that the forward pass has called so far, while it is looked at.
        self._called: set[nn.Module] | None = None
        self._pending: set[int] = set()

    def add(self, group: int, parameters: Iterable[Tensor]) -> None:
        """Take on a group of parameters."""
        self._groups.update(dict.fromkeys(parameters, group))
        self._due = None

    def hook(self) -> list[Any]:
        """Begin to watch the model; return the handles that end it."""
        this = weakref.ref(self)
        handles: list[Any] = []
        for module in self._model.modules():
            handles.append(module.register_forward_pre_hook(partial(_before_forward, this)))
            handles.append(module.register_state_dict_pre_hook(partial(_before_state, this)))  # type: ignore[no-untyped-call]
            handles.append(module._register_load_state_dict_pre_hook(partial(_before_load, this)))  # type: ignore[no-untyped-call]
        handles.append(self._model.register_forward_hook(partial(_after_forward, this)))
        return handles

    @property
    def can_defer(self) -> bool:
        """Whether it is known when each update is due."""
        return self._due is not None

    @property
    def pending(self) -> set[int]:
        """The groups whose update is still to be made; whoever makes it takes them out."""
        return self._pending

    def defer(self, groups: Iterable[int]) -> None:
        """Leave the updates of these groups to the next forward pass. REQUIRES: can_defer."""
        self._pending.update(groups)

    def settle(self, groups: set[int] | None = None) -> None:
        """Make those of these updates (of all, without) that are still to be made."""
        due = self._pending if groups is None else self._pending & groups
        if not due:
            return
        settle = self._settle()
        if settle is not None:
            settle(sorted(due))

    def settle_before_load(self) -> None:
        """Make all updates, for what is loaded to replace; where the gradients were lost there are none to make."""
        try:
            self.settle()
        except HorovodInternalError:
            assert not self._pending

    # --- the model's hooks

    def before_forward(self, module: nn.Module) -> None:
        """Make the updates that are due. Where no gradients are computed, all: nothing would show what was missed."""
        if self._pending:
            self.settle(self._due.get(module, set()) if self._due and torch.is_grad_enabled() else None)
        if self._due is None and module is self._model and torch.is_grad_enabled():
            self._called = set()
        if self._called is not None:
            self._called.add(module)

    def after_forward(self) -> None:
        """Learn from the first forward pass."""
        if self._called is None:
            return
        due: dict[nn.Module, set[int]] = {}
        self._assign(self._model, self._model, self._called, due)
        elsewhere = set(self._groups.values()) - set().union(*due.values())
        due.setdefault(self._model, set()).update(elsewhere)
        self._due, self._called = due, None

    def _assign(
        self, module: nn.Module, around: nn.Module, called: set[nn.Module], due: dict[nn.Module, set[int]]
    ) -> None:
        if module in called:
            around = module
        own = {self._groups[p] for p in module.parameters(recurse=False) if p in self._groups}
        due.setdefault(around, set()).update(own)
        for child in module.children():
            self._assign(child, around, called, due)


Watching = weakref.ref[ForwardOverlap]


def _before_forward(watching: Watching, module: nn.Module, _inputs: object) -> None:
    if (overlap := watching()) is not None:
        overlap.before_forward(module)


def _after_forward(watching: Watching, _module: nn.Module, _inputs: object, _outputs: object) -> None:
    if (overlap := watching()) is not None:
        overlap.after_forward()


def _before_load(watching: Watching, *_arguments: object) -> None:
    if (overlap := watching()) is not None:
        overlap.settle_before_load()


def _before_state(watching: Watching, *_arguments: object) -> None:
    if (overlap := watching()) is not None:
        overlap.settle()
