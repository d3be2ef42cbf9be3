"""The optimizer for op=Adasum: every rank makes its own step, and the changes that the steps made are combined.

Adasum adds two changes as far as they point in different directions, and averages them as far as they point in the
same one, so that learning rates need not be scaled with the number of ranks. What is combined is the difference between
the parameters after and before the wrapped optimizer's own step: momenta and the like stay each rank's own.

Gradients stay each rank's own too, so ranks see different ones: they agree before each step on what they train, and on
whether any of them has to skip the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import engine, rank
from ciranda._basics import step as step_ended
from ciranda._frameworks.naming import joined
from ciranda._frameworks.options import PREFIX, Options, positive
from ciranda._ops import ALLREDUCE, Max
from ciranda._spans import Recorded, profiler
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.process_sets import id_of
from ciranda.torch import ops
from ciranda.torch.passes import Passes, error_of_early_zero_grad
from ciranda.torch.scaled_step import OwnSteps
from ciranda.torch.spans import part
from ciranda.torch.tensors import contiguous, for_engine, is_trained

Tensor = torch.Tensor


class AdasumOptimizer(OwnSteps):
    """The methods that DistributedOptimizer(op=Adasum) adds to the class that it wraps."""

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._prepared: list[_core.PreparedCall] = []
        self._passes = Passes(options)
        self._agreement = f"{PREFIX}.{joined(list(names.values()))}.agreement"
        super()._distribute(options, names, members)

    def _add_group(self, parameters: list[Tensor]) -> None:
        names = [self._parameter_names[parameter] for parameter in parameters]
        self._members.append(parameters)
        self._prepared.append(self._options.prepare(f"{joined(names)}.delta"))
        for parameter, name in zip(parameters, names, strict=True):
            if self._takes_part and is_trained(parameter):  # not so of one that only other ranks train
                self._call_at_gradient(parameter, self._passes.make_hook(name))

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes the caller makes before each step, at most."""
        return self._options.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Say how many backward passes are made before each step, at most; more are an error."""
        self._options.passes = positive(passes)
        self._passes.restart()

    def set_weight(self, weight: float | None) -> None:
        """Raise InvalidArgumentError unless `weight` is None: Adasum is no average that weights could be for.

        It makes up for ranks whose steps differ in length and direction by itself.
        """
        if weight is not None:
            raise InvalidArgumentError(
                f"set_weight({weight}): weights are for op=Average only, and this optimizer's is op=Adasum"
            )

    def synchronize(self) -> None:
        """Allow zero_grad() before the step. Gradients are not combined, and step() waits for the changes."""
        self._passes.restart()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raise AssertionError: there is nothing that could be skipped."""
        raise AssertionError("skip_synchronize() cannot be used with op=Adasum: step() itself combines the changes")
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the wrapped optimizer's step with this rank's gradients, then combine the changes of all ranks.

        Where torch.amp.GradScaler has found that gradients of any rank are not finite, no rank makes the step.
        """
        self._passes.restart()
        must_skip = self._must_skip
        if not self._takes_part:
            return None if must_skip else self._step_alone(closure)
        self._check_number(self._tell_number())
        self._compare_parameters()
        step_ended()
        if self._agree(must_skip):
            return None
        before = [[parameter.detach().clone() for parameter in group] for group in self._members]
        loss = self._step_alone(None if closure is None else self._counting_anew(closure))
        with torch.no_grad():
            changes = [
                [parameter.detach() - start for parameter, start in zip(group, starts, strict=True)]
                for group, starts in zip(self._members, before, strict=True)
            ]
            with part("DistributedOptimizer.synchronize"):
                all_combined = self._combine(changes)
            for group, starts, combined in zip(self._members, before, all_combined, strict=True):
                for parameter, start, change in zip(group, starts, combined, strict=True):
                    parameter.copy_(start + change)
        return loss

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def _counting_anew(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return `closure` for optimizers that call it several times in a step."""

        def counted() -> Any:
            loss = closure()
            self._passes.restart()
            return loss

        return counted

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients; what backward passes have accumulated is no part of the next step.

        Raises:
            AssertionError: the backward passes of a step are complete, and the step was not made.
        """
        if self._passes.are_complete:
            raise error_of_early_zero_grad(self._options, "kept for the step")
        self._passes.restart()
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the wrapped optimizer's state. The count of backward passes restarts."""
        self._passes.restart()
        super().load_state_dict(*args, **kwargs)

    def _agree(self, must_skip: bool) -> bool:
        """Take on the parameters that any rank trains by now. Return whether any rank must skip the step."""
        group_of = {parameter: number for number, group in enumerate(self._members, 1) for parameter in group}
        everything = list(self._parameter_names)
        groups = [group_of.get(parameter, 0) for parameter in everything]
        mine = torch.tensor(
            [
                [must_skip, *map(is_trained, everything)],
                [0, *groups],
                [0, *(-group for group in groups)],
            ],
            dtype=torch.int32,
            device="cpu",
        )
        most = ops.allreduce(mine, name=self._agreement, op=Max, process_set=self._options.process_set)
        differing = (most[1] != -most[2]).nonzero().flatten().tolist()
        if differing:
            name = self._parameter_names[everything[differing[0] - 1]]
            raise MismatchError(
                f"op=Adasum: on rank {rank()} parameter '{name}' is not in the same group as on other ranks; wrap "
                "optimizers with the same groups, and the same parameters frozen, on all ranks"
            )
        is_trained_by_any = dict(zip(everything, most[0, 1:].tolist(), strict=True))
        self._adopt([parameter for parameter in self._frozen if is_trained_by_any[parameter]])
        return bool(most[0, 0])

    def _combine(self, changes: list[list[Tensor]]) -> list[list[Tensor]]:
        compression = self._options.compression
        compressed = [[compression.compress(change) for change in group] for group in changes]
        sent = [[contiguous(tensor) for tensor, _ in group] for group in compressed]
        connected: Any = engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, ALLREDUCE, id_of(self._options.process_set))
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
