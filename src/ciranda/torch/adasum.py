"""The optimizer for op=Adasum: every rank makes its own step, and the changes that the steps made are combined.

Adasum adds two changes as far as they point in different directions, and averages them as far as they point in the
same one, so that learning rates need not be scaled with the number of ranks. What is combined is the difference between
the parameters after and before the wrapped optimizer's own step: momenta and the like stay each rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import engine
from ciranda.errors import InvalidArgumentError
from ciranda.torch.gradients import Options
from ciranda.torch.naming import joined
from ciranda.torch.tensors import contiguous, for_engine
from ciranda.torch.wrapping import WrappedOptimizer

Tensor = torch.Tensor


class AdasumOptimizer(WrappedOptimizer):
    """The methods that DistributedOptimizer(op=Adasum) adds to the class that it wraps."""

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._options = options
        self._names = names
        self._members = members
        self._prepared = [options.prepare(f"{joined([names[p] for p in group])}.delta") for group in members]

    def _distribution(self) -> tuple[Any, ...]:
        return self._options, self._names, self._members

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as torch.optim.Optimizer does; their changes are combined too."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self._names[parameter] = f"noname.added.{len(self._names)}"
            self._members.append([parameter])
            self._prepared.append(self._options.prepare(f"{self._names[parameter]}.delta"))

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes the caller makes before each step."""
        return self._options.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Say how many backward passes are made before each step; nothing depends on it, as gradients stay here."""
        if passes < 1:
            raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
        self._options.passes = passes

    def set_weight(self, weight: float | None) -> None:
        """Raise InvalidArgumentError unless `weight` is None: Adasum is no average that weights could be for.

        It makes up for ranks whose steps differ in length and direction by itself.
        """
        if weight is not None:
            raise InvalidArgumentError(
                f"set_weight({weight}): weights are for op=Average only, and this optimizer's is op=Adasum"
            )

    def synchronize(self) -> None:
        """Do nothing: gradients are not combined, and step() waits for the changes."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raise AssertionError: there is nothing that could be skipped."""
        raise AssertionError("skip_synchronize() cannot be used with op=Adasum: step() itself combines the changes")
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the wrapped optimizer's step with this rank's gradients, then combine the changes of all ranks."""
        before = [[parameter.detach().clone() for parameter in group] for group in self._members]
        loss = super().step() if closure is None else super().step(closure)
        if self._options.process_set.included() is False:
            return loss
        with torch.no_grad():
            changes = [
                [parameter.detach() - start for parameter, start in zip(group, starts, strict=True)]
                for group, starts in zip(self._members, before, strict=True)
            ]
            for group, starts, combined in zip(self._members, before, self._combine(changes), strict=True):
                for parameter, start, change in zip(group, starts, combined, strict=True):
                    parameter.copy_(start + change)
        return loss

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def _combine(self, changes: list[list[Tensor]]) -> list[list[Tensor]]:
        compression = self._options.compression
        compressed = [[compression.compress(change) for change in group] for group in changes]
        sent = [[contiguous(tensor) for tensor, _ in group] for group in compressed]
        connected = engine()
        _core.wait_all(
            [
                connected.submit_prepared(prepared, [for_engine(tensor) for tensor in group])
                for prepared, group in zip(self._prepared, sent, strict=True)
            ]
        )
        return [
            [compression.decompress(tensor, context) for tensor, (_, context) in zip(group, pairs, strict=True)]
            for group, pairs in zip(sent, compressed, strict=True)
        ]
