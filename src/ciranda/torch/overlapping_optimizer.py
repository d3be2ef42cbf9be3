"""The optimizer for overlap_forward: step() leaves the updates to the next forward pass (forward_overlap.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ciranda import _core
from ciranda._frameworks.options import Options
from ciranda.torch.forward_overlap import ForwardOverlap
from ciranda.torch.gradient_optimizer import GradientOptimizer, is_asked_by_scaler

Tensor = torch.Tensor


class OverlappingOptimizer(GradientOptimizer):
    """The methods that DistributedOptimizer(overlap_forward=model) adds to the class that it wraps.

    A step is left to the next forward pass if all gradients have come, and nobody looks at them first. Otherwise it is
    made at once, as by any other rank that still has to find out which gradients there are: what ranks tell each other
    is the same. A copy of the optimizer has no model to watch, and makes all of its steps at once.
    """

    _may_settle = False

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._overlap: ForwardOverlap | None = None
        self._position = {parameter: index for index, parameter in enumerate(names)}
        #: The parameter groups without their parameters, as they were when the step was left.
        self._hyperparameters: list[dict[str, Any]] = []
        #: The argument of the zero_grad() that is to follow the updates; None where there was none.
        self._zeroes: bool | None = None
        super()._distribute(options, names, members)

    def overlap_forward(self, model: torch.nn.Module) -> None:
        """Watch the forward passes of `model`, and leave steps to them."""
        self._overlap = ForwardOverlap(model, self._settle)
        for index, parameters in enumerate(self._members):
            self._overlap.add(index, parameters)
        self._hooks += self._overlap.hook()

    def _priority_of(self, parameters: list[Tensor]) -> int:
        # The forward pass reads parameters about in the order in which they were named.
        positions = [self._position.setdefault(parameter, len(self._position)) for parameter in parameters]
        return max(1, len(self._position) - min(positions, default=0))

    def _add_group(self, parameters: list[Tensor]) -> None:
        self._settle_all()
        super()._add_group(parameters)
        if self._overlap is not None and self._takes_part:
            self._overlap.add(len(self._groups) - 1, parameters)

    # --- leaving a step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Leave the wrapped optimizer's step to the next forward pass, or make it, as GradientOptimizer does."""
        self._settle_all()  # what the last forward pass did not reach
        if closure is None and self._should_synchronize and not self._synchronized and self._leave():
            self._count_step()
            return None
        return super().step(closure)

    step.hooked = True  # type: ignore[attr-defined]

    def _leave(self) -> bool:
        self._adopt_thawed()
        overlap = self._overlap
        if overlap is None or not overlap.can_defer or not self._groups:
            return False
        if not all(group.is_usual for group in self._groups):
            return False
        self._share_buckets()
        self._tell()
        for group in self._groups:
            group.is_deferred = True
        # Schedulers change them right after the step, a tensor in place.
        self._hyperparameters = [
            {key: value.clone() if isinstance(value, Tensor) else value for key, value in each.items()}
            for each in vars(self)["param_groups"]
        ]
        self._zeroes = None
        overlap.defer(range(len(self._groups)))
        return True

    # --- making it

    @property
    def _pending(self) -> set[int]:
        return set() if self._overlap is None else self._overlap.pending

    def _settle_all(self) -> None:
        if self._overlap is not None:
            self._overlap.settle()

    def _settle(self, indices: list[int]) -> None:
        """Make the updates of these groups of parameters."""
        pending = self._pending
        parameters = [parameter for index in indices for parameter in self._members[index]]
        try:
            self._finish_comparing()  # before any of them changes
            _core.wait_all([operation for index in indices if (operation := self._groups[index].operation) is not None])
            for index in indices:
                self._groups[index].check_unchanged(self._members[index])
                self._groups[index].finish(self._members[index], ())
            if len(indices) == len(pending):
                self._hear()
                self._presence.restart()
        except BaseException as error:
            for index in pending:
                self._groups[index].reset()
            self._presence.restart()
            pending.clear()
            self._give_up(error)
            raise
        for index in indices:
            self._groups[index].reset()
        pending.difference_update(indices)
        with self._only(parameters, self._hyperparameters):
            super(GradientOptimizer, self).step()
        if self._zeroes is not None:
            self._zero_only(parameters, self._zeroes)

    @contextmanager
    def _only(self, parameters: list[Tensor], groups: list[dict[str, Any]]) -> Iterator[None]:
        """Within this, the optimizer's parameter groups are `groups` with none but these parameters."""
        chosen = set(parameters)
        mine = [{**group, "params": [p for p in group["params"] if p in chosen]} for group in groups]
        saved = vars(self)["param_groups"]
        vars(self)["param_groups"] = [group for group in mine if group["params"]]
        try:
            yield
        finally:
            vars(self)["param_groups"] = saved

    # --- what others do between a step and its updates

    @property
    def param_groups(self) -> Any:
        """The parameter groups, as GradientOptimizer has them; who reads them after a step that was left waits not."""
        if self._pending:
            if not is_asked_by_scaler():
                return vars(self)["param_groups"]
            self._settle_all()  # what the last forward pass did not reach
        return GradientOptimizer.param_groups.fget(self)  # type: ignore[attr-defined]

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        vars(self)["param_groups"] = value

    def synchronize(self) -> None:
        """Make the updates that were left; else wait until all gradients are combined, as GradientOptimizer does."""
        if self._pending:
            self._settle_all()
            if not self._has_started():
                return
        super().synchronize()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; those of a step that was left once the updates have been made."""
        pending = self._pending
        if not pending:
            super().zero_grad(set_to_none)
            return
        self._zeroes = set_to_none
        left = {parameter for index in pending for parameter in self._members[index]}
        others = [parameter for parameter in self._parameter_names if parameter not in left]
        self._zero_only(others, set_to_none)

    def _zero_only(self, parameters: list[Tensor], set_to_none: bool) -> None:
        with self._only(parameters, vars(self)["param_groups"]):
            super(GradientOptimizer, self).zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with all updates made."""
        self._settle_all()
        return super().state_dict()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the wrapped optimizer's state. Steps are made first; what a backward pass has begun is dropped."""
        if self._overlap is not None:
            self._overlap.settle_before_load()
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as torch.optim.Optimizer does; their gradients are combined too."""
        self._settle_all()
        super().add_param_group(param_group)
