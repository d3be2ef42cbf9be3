"""LocalSGD: every rank steps by itself, and every k steps the parameters of all ranks are averaged.

Parameters are sent, once in k steps, in place of gradients in each. With k=1 and plain SGD the training is the same; it
differs with larger k, or with momenta, which are local unless they are averaged too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from ciranda._basics import rank, world
from ciranda._basics import step as step_ended
from ciranda._frameworks.compression import NoneCompressor
from ciranda._frameworks.interval import Interval, Progress
from ciranda._frameworks.marks import distributed_among, is_distributed
from ciranda._frameworks.naming import joined, name_parameters, next_number
from ciranda._frameworks.options import Options
from ciranda._ops import Average, Max, Sum
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch import ops
from ciranda.torch.scaled_step import OwnSteps
from ciranda.torch.spans import part
from ciranda.torch.tensors import is_trained
from ciranda.torch.wrapping import check_optimizer, wrap

Tensor = torch.Tensor

_PREFIX = "LocalSGD"


@dataclass
class LocalOptions(Options):
    """The arguments of LocalSGD that outlive the call."""

    interval: Interval = field(default_factory=lambda: Interval(1))
    averages_state: bool = False


class LocalOptimizer(OwnSteps):
    """The methods that LocalSGD adds to the class that it wraps."""

    _options: LocalOptions
    _who = _PREFIX
    _remedy = "broadcast_parameters(), or average(),"

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._name = f"{_PREFIX}.{joined(list(names.values()))}"
        #: Steps since the last average, and the losses that were reported in these.
        self._n_steps = 0
        self._losses: list[float] = []
        #: The world in which the ranks were checked to begin with the same parameters.
        self._begun_in: int | None = None
        grouped = {parameter for group in members for parameter in group}
        #: The parameters that are local to each rank.
        self._own = {parameter for parameter in names if parameter not in grouped}
        super()._distribute(options, names, members)

    def _add_group(self, parameters: list[Tensor]) -> None:
        self._members.append(parameters)

    @property
    def k(self) -> int:
        """The current number of steps between two averages."""
        return self._options.interval.k

    # --- stepping

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the wrapped optimizer's step with this rank's gradients; after each k-th, average the parameters.

        If torch.amp.GradScaler has found gradients that are not finite, this rank's parameters do not change; the step
        counts nevertheless, so that the ranks average after the same steps.
        """
        self._begin()
        loss = None if self._must_skip else self._step_alone(closure)
        if not self._takes_part:
            return loss
        if closure is not None and loss is not None and self._options.interval.is_adaptive:
            self.report_loss(loss)
        self._n_steps += 1
        step_ended()
        if self._n_steps >= self.k:
            with part("LocalSGD.average"):
                self._average(self.k)
        return loss

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def report_loss(self, loss: Any) -> None:
        """Report the loss of a step to an adaptive optimizer, unless a closure returns it."""
        self._losses.append(float(loss))

    def _begin(self) -> None:
        """Check, once in each world, that the ranks begin with the same parameters.

        Raises:
            MismatchError: on all ranks; otherwise they would average unrelated parameters.
        """
        if not self._takes_part or self._begun_in == world.epoch:
            return
        self._check_number(self._tell_number())
        self._n_steps = 0
        self._losses.clear()
        self._compare_parameters()
        self._begun_in = world.epoch

    def _compared(self) -> list[Tensor]:
        return self._averaged()

    # --- averaging

    def average(self) -> None:
        """Average the parameters now: before they are evaluated or saved, or after the last step. Restarts the count.

        All ranks must call it, and may have made different numbers of steps.
        """
        if self._takes_part:
            self._check_number(self._tell_number())
            self._begun_in = world.epoch
            self._average(0)

    def _averaged(self) -> list[Tensor]:
        everything = self._parameter_names
        return [each for each in everything if is_trained(each) and each not in self._own and not is_distributed(each)]

    def _average(self, n_steps: int) -> None:
        named = {self._parameter_names[parameter]: parameter.detach() for parameter in self._averaged()}
        if self._options.averages_state:
            named.update(self._states())
        self._check(n_steps, list(named))
        process_set = self._options.process_set
        progress = self._tell_progress() if self._options.interval.is_adaptive else None
        if named:
            ops.grouped_allreduce_(list(named.values()), op=Average, name=self._name, process_set=process_set)
        self._n_steps = 0
        self._losses.clear()
        if progress is not None:
            self._options.interval.adapt(progress)

    def _states(self) -> dict[str, Tensor]:
        """Return the optimizer's state of the averaged parameters: momenta and the like, no counts."""
        found = {}
        for parameter in self._averaged():
            name = self._parameter_names[parameter]
            for key, value in sorted(self.state.get(parameter, {}).items()):
                is_count = isinstance(value, Tensor) and value.ndim == 0 < parameter.ndim
                if isinstance(value, Tensor) and value.is_floating_point() and not is_count:
                    found[f"{name}: {key}"] = value
        return found

    def _check(self, n_steps: int, names: list[str]) -> None:
        """Check that all ranks average the same, and for the same reason: a k-th step, or a call (0 steps).

        Raises:
            MismatchError: on all ranks.
        """
        mine = torch.tensor(
            [n_steps, len(names), zlib.crc32("\n".join(names).encode())], dtype=torch.float64, device="cpu"
        )
        name = f"{self._name}.agreement"
        most, least = ops.allreduce(
            torch.stack([mine, -mine]), op=Max, name=name, process_set=self._options.process_set
        ) * torch.tensor([[1.0], [-1.0]], device="cpu")
        if most[0] != least[0]:
            raise MismatchError(
                f"LocalSGD: rank {rank()} averages {_reason(n_steps)}, but others {_reason(int(least[0]))} or "
                f"{_reason(int(most[0]))}: give the same k on all ranks, and let all call average() or none"
            )
        if not torch.equal(most, least):
            raise MismatchError(
                f"LocalSGD: rank {rank()} averages {len(names)} tensors, {', '.join(names[:3])}, ..., but others do "
                f"not average the same ({int(least[1])} to {int(most[1])}): freeze the same parameters on all; with "
                "average_state=True each must also have the same state, so that every rank must have stepped with a "
                "gradient of each parameter"
            )

    def _tell_progress(self) -> Progress | None:
        """Return the progress of all ranks together.

        Raises:
            InvalidArgumentError: on all ranks; no rank has a loss.
        """
        rate = float(self.param_groups[0].get("lr", 1.0))
        mine = torch.tensor([sum(self._losses), len(self._losses), rate, 1.0], dtype=torch.float64, device="cpu")
        name = f"{self._name}.progress"
        loss, n_losses, rates, n_ranks = ops.allreduce(
            mine, op=Sum, name=name, process_set=self._options.process_set
        ).tolist()
        if n_losses == 0 and self._n_steps == self.k:
            raise InvalidArgumentError(
                "LocalSGD(adaptive=True) has heard of no loss since the last average: call report_loss(loss) before "
                "step(), or give step() a closure that returns the loss"
            )
        return Progress(loss / n_losses, rates / n_ranks) if n_losses else None


def _reason(n_steps: int) -> str:
    return f"every {n_steps} steps" if n_steps else "because average() was called"


def LocalSGD(  # noqa: N802 (a class to its users, as DistributedOptimizer is)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    k: int = 4,
    adaptive: bool = False,
    max_k: int = 16,
    average_state: bool = False,
    distributed: Iterable[Tensor | str] = (),
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer of `optimizer`'s own class that steps alone, and averages parameters every `k` steps.

    It takes over the state and the parameter groups of `optimizer`, which should not be used any more. All ranks must
    begin with the same parameters (`broadcast_parameters()`), and make the same number of steps, or `join()`.

    Args:
        optimizer: any torch optimizer.
        named_parameters: as `model.named_parameters()`: all parameters of the optimizer, with unique names that are
            the same on every rank. Without them parameters are identified by their position.
        k: the number of steps between averages. 1 averages after each step.
        adaptive: begin with k, and average more often as the loss falls, less often as the learning rate does
            (`report_loss()`).
        max_k: the largest number of steps between two averages, if `adaptive`.
        average_state: average the optimizer's state of the parameters, momenta for example, with them; by default each
            rank keeps its own.
        distributed: local parameters, themselves or their names, which are not averaged. Parameters whose attribute
            `is_distributed` is True, as those of `ciranda.torch.nn.ShardedLinear`, need not be listed.
        process_set: the ranks whose parameters are averaged; the others step alone.

    Raises:
        InvalidArgumentError: (a ValueError) names are missing or not unique, an argument is out of range, or an entry
            of `distributed` is not a parameter of the optimizer.
    """
    id_of(process_set)
    check_optimizer(optimizer, "LocalSGD")
    options = LocalOptions(
        NoneCompressor,
        1,
        Average,
        1.0,
        False,
        process_set,
        interval=Interval(k, max_k if adaptive else None),
        averages_state=average_state,
    )
    if named_parameters is None:
        options.number = next_number(process_set)
    everything = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = name_parameters(everything, named_parameters, options.number, torch.Tensor)
    own = distributed_among(names, distributed)
    averaged = [parameter for parameter in names if parameter not in own]
    return wrap(optimizer, LocalOptimizer, options, names, [averaged])
