"""GradientOptimizer: the methods by which DistributedOptimizer makes an optimizer step with the gradients of all ranks.

When the backward pass has computed a gradient, its allreduce starts, in place, while the backward pass continues.
`step()` waits for all of them and then makes the wrapped optimizer's step, or defers it to the next forward pass
(overlapping_optimizer.py).
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import step as step_ended
from ciranda._basics import world
from ciranda._frameworks.naming import joined
from ciranda._frameworks.options import PREFIX, Options, positive
from ciranda._ops import Average, Handle, is_done_within
from ciranda.errors import HorovodInternalError, InvalidArgumentError, MismatchError, NotInitializedError
from ciranda.torch import ops
from ciranda.torch.buckets import Bucket, share
from ciranda.torch.gradients import GradientGroup
from ciranda.torch.own_gradients import share_overflow
from ciranda.torch.passes import error_of_early_zero_grad
from ciranda.torch.presence import Kind, Presence
from ciranda.torch.spans import part
from ciranda.torch.tensors import is_trained
from ciranda.torch.wrapping import WrappedOptimizer

Tensor = torch.Tensor

_PATIENCE = 0.001  # seconds

#: The method of torch.amp.GradScaler that divides gradients by its scale.
_CHANGED_BY_SCALER = "_unscale_grads_"

#: In the engine's text of a disagreement in which no rank asks, since all waited for others (agree/standstill.cc).
_NOBODY_ASKS = "as ranks wait for each other"


def is_asked_by_scaler() -> bool:
    """Whether GradScaler reads `param_groups`, to change the gradients: there is no other sign of that.

    torch does not count its change as a new version of the gradients, so it could not be detected afterwards either.
    """
    frame = sys._getframe(2)
    while frame.f_code.co_name == "param_groups" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name == _CHANGED_BY_SCALER


class GradientOptimizer(WrappedOptimizer):
    """The methods that DistributedOptimizer adds to the class that it wraps."""

    #: Whether a step is complete when step() returns, with all reports of other ranks received.
    _may_settle = True

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._groups: list[GradientGroup] = []
        self._warned: set[str] = set()
        self._synchronized = False
        self._should_synchronize = True
        #: Whether the caller of synchronize() should step within skip_synchronize().
        self._is_expected_to_skip = False
        #: What is under way between the ranks about the step that has begun.
        self._numbers: Handle[Tensor] | None = None
        #: The world in which the last step ended: what has begun since belongs there. None: it belongs to the first.
        self._ended_in = world.epoch if world.engine is not None else None
        name, priority = joined(list(names.values())), self._priority_of(list(names))
        self._presence = Presence(name, options, priority, self._may_settle)
        super()._distribute(options, names, members)

    def _priority_of(self, _parameters: list[Tensor]) -> int:
        """Return the priority of the gradients of these parameters."""
        return 0

    def _add_group(self, parameters: list[Tensor]) -> None:
        if not self._takes_part:
            return
        bucket = Bucket(parameters) if self._options.has_buckets else None
        names = [self._parameter_names[parameter] for parameter in parameters]
        group = GradientGroup(names, self._options, self._presence, bucket, self._priority_of(parameters))
        self._members.append(parameters)
        self._groups.append(group)
        for member, parameter in enumerate(parameters):
            self._call_at_gradient(parameter, group.make_hook(member))

    def _adopt_thawed(self) -> None:
        """Combine the gradients of parameters that were frozen when the optimizer was wrapped, or yet to be made."""
        if self._frozen:
            self._adopt(list(filter(is_trained, self._frozen)))

    @property
    def param_groups(self) -> Any:
        """The parameter groups. Reading them after a complete backward pass waits until the gradients are combined.

        The same holds for `GradScaler`, which divides the gradients by its scale just before it calls step(), also if a
        backward pass has not reached all of them: it may change only those whose reduction has not begun.
        """
        attributes = vars(self)
        groups = attributes.get("_groups")
        if groups is None:
            return attributes["param_groups"]
        by_scaler = is_asked_by_scaler()
        if groups and self._should_synchronize:
            is_complete = all(group.is_under_way for group in groups)
            if is_complete or (by_scaler and self._has_started()):
                self._synchronize(has_come_to_step=False)
        if by_scaler and self._takes_part:
            share_overflow(self._parameter_names, self._options.process_set)
        return attributes["param_groups"]

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        vars(self)["param_groups"] = value

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes accumulate locally before the gradients are combined."""
        return self._options.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes accumulate locally; gradients not yet combined get the full number."""
        self._options.passes = positive(passes)
        for group in self._groups:
            group.restart_passes()

    def set_weight(self, weight: float | None) -> None:
        """Set the weight of this rank's gradients in later averages, for example its number of samples.

        The average is the sum of weight * gradient over the sum of the weights, so that ranks whose batches differ in
        size train as one process does with all of them. A rank of weight 0 has no samples, and need not run a backward
        pass. All ranks must set weights, or none; None removes the weight. Call it before the backward pass.

        Raises:
            InvalidArgumentError: the weight is negative or not finite, or the optimizer's op is not Average.
            AssertionError: a backward pass has begun, whose gradients may already be in reduction.
        """
        if weight is not None and (self._options.op != Average or not 0 <= weight < float("inf")):
            raise InvalidArgumentError(f"set_weight({weight}): weights are 0 or more, and for op=Average only")
        if self._has_started():
            raise AssertionError("set_weight() was called between backward() and step(); call it before backward()")
        self._options.weight = weight

    # --- combining ---

    def synchronize(self) -> None:
        """Wait until all gradients are combined; start those that the backward pass did not reach.

        Use it for changes between the backward pass and the step, as gradient clipping; then step within
        `skip_synchronize()`. Every rank must call it.

        Raises:
            AssertionError: a gradient was changed during its reduction.
            HorovodInternalError: a gradient could not be combined: ranks disagree, a rank has died.
        """
        # Who has read param_groups since the backward pass has combined the gradients already.
        if not self._synchronized or self._is_expected_to_skip or self._has_started():
            self._synchronize()
        self._hear()
        self._is_expected_to_skip = True

    def _synchronize(self, has_come_to_step: bool = True) -> None:
        self._adopt_thawed()
        try:
            with part("DistributedOptimizer.synchronize"):
                missing = self._combine(has_come_to_step) if self._takes_part else []
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self._restart()
            for group in self._groups:
                group.is_new = False
        self._synchronized = True
        self._is_expected_to_skip = False
        self._warn_of_missing(missing)

    def _restart(self) -> None:
        """Prepare for the gradients of the next backward pass."""
        for group in self._groups:
            group.reset()
        self._presence.restart()
        self._ended_in = world.epoch

    def _tell(self) -> None:
        """Start to exchange which gradients this rank has, and its step number."""
        if self._presence.begin():
            self._numbers = None
        self._hear()  # about a step that was left out
        self._numbers = self._tell_number()
        self._start_to_compare()
        kinds = [kind for group, its in zip(self._groups, self._members, strict=True) for kind in group.kinds(its)]
        self._presence.tell(kinds, all(group.is_usual for group in self._groups))

    def _has_heard(self) -> bool:
        """Whether _hear() would not block."""
        is_told = self._numbers is None or self._numbers.poll()
        return is_told and self._parameter_check.poll() and self._presence.poll()

    def _hear(self) -> None:
        """Wait for the other ranks' reports, and check that they are consistent with this rank's."""
        if not self._presence.is_to_be_heard:
            return
        self._share_buckets()
        numbers, self._numbers = self._numbers, None
        try:
            self._check_number(numbers)  # first: with other numbers the others have other names for all else
            self._finish_comparing()
            self._presence.hear([name for group in self._groups for name in group.names])
        except BaseException as error:
            self._give_up(error)
            raise

    def _finish_comparing(self) -> None:
        """Check, if that is under way, that the ranks begin with the same parameters.

        Raises:
            MismatchError: on all ranks.
        """
        self._parameter_check.finish(self._finish_calls)

    def _finish_calls(self) -> None:
        """Finish the step's calls, which all ranks have made alike, and whose names the next step uses again."""
        self._wait_for_groups()
        for reduction in itertools.chain.from_iterable(group.sparse.values() for group in self._groups):
            reduction.wait()
        self._presence.hear([name for group in self._groups for name in group.names])

    def _wait_for_groups(self) -> None:
        _core.wait_all([group.operation for group in self._groups if group.operation is not None])

    def _hear_nobody(self) -> None:
        self._numbers = None
        self._parameter_check.forget()
        self._presence.forget()

    def _give_up(self, error: BaseException) -> None:
        """Expect no more of the step that has failed. Of a disagreement all ranks hear, and begin anew together.

        So one may go on with another optimizer of the same parameters.
        """
        self._hear_nobody()
        if isinstance(error, MismatchError):
            self._numbered_in = None
            self._parameter_check.begin_anew()
            self._presence.begin_anew()

    def _share_buckets(self) -> None:
        if self._options.shares_buckets:
            share([group.bucket for group in self._groups if group.bucket is not None])

    def _count_step(self) -> None:
        step_ended()
        self._presence.count_step()
        self._synchronized = False

    def _combine(self, has_come_to_step: bool) -> list[str]:
        """Return the names of the gradients that other ranks have and this one does not."""
        is_usual = all(group.is_usual for group in self._groups)
        asks = not self._presence.is_settled or any(group.is_new for group in self._groups)
        if asks:
            self._tell()
            if has_come_to_step or not is_usual:
                self._hear()
            else:
                self._wait_before_step()
        kinds = self._kinds() if asks and not is_usual else [[] for _ in self._groups]
        for group, parameters, its_kinds in zip(self._groups, self._members, kinds, strict=True):
            if not group.is_under_way:
                group.complete(parameters, its_kinds)
        try:
            self._wait_for_groups()
        except MismatchError as error:
            if not asks and _NOBODY_ASKS not in str(error):
                self._answer(has_come_to_step)
            raise
        return self._finish(kinds, asks)

    def _answer(self, has_come_to_step: bool) -> None:
        """Report to the ranks that have asked, with gradients that failed because those of this rank reported too.

        They have begun anew, with another optimizer of the same parameters, and would wait for this rank.
        """
        self._parameter_check.begin_anew()
        self._tell()
        if has_come_to_step:
            with suppress(MismatchError):
                self._hear()

    def _finish(self, kinds: list[list[Kind]], has_asked: bool) -> list[str]:
        for group, parameters in zip(self._groups, self._members, strict=True):
            group.check_unchanged(parameters)
        for index, group in enumerate(self._groups):
            if not has_asked or group.carries:
                kinds[index] = group.learn(self._members[index])
        if not has_asked:
            self._presence.note_heard(not any(kinds))
        missing = [
            name for group, its_kinds in zip(self._groups, kinds, strict=True) for name in group.missing(its_kinds)
        ]
        for group, parameters, its_kinds in zip(self._groups, self._members, kinds, strict=True):
            group.finish(parameters, its_kinds)
        return missing

    def _kinds(self) -> list[list[Kind]]:
        """Return the kinds of gradients of all ranks together, group by group."""
        kinds = self._presence.kinds()
        ends = itertools.accumulate(map(len, self._members))
        return [kinds[end - len(group) : end] for group, end in zip(self._members, ends, strict=True)]

    def _wait_before_step(self) -> None:
        """Wait for the gradients only: other ranks may need this rank's next calls before they reach their step."""
        operations = [group.operation for group in self._groups if group.operation is not None]
        while not self._has_heard() and operations:
            if is_done_within(operations[-1], _PATIENCE):
                operations.pop()
        if self._has_heard():
            self._hear()

    def _warn_of_missing(self, missing: list[str]) -> None:
        new = [name for name in missing if name not in self._warned]
        if new:
            self._warned.update(new)
            warnings.warn(
                f"parameters got a gradient on other ranks, but none on this one, which contributes zeros: "
                f"{', '.join(new)} (shown once for each parameter)",
                stacklevel=4,
            )

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this, step() uses the gradients unchanged. Call synchronize() before."""
        if not self._should_synchronize:
            raise AssertionError("skip_synchronize() is entered twice")
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def _has_started(self) -> bool:
        return any(group.has_started for group in self._groups)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Combine the gradients, then make the wrapped optimizer's step.

        After an explicit `synchronize()` that no backward pass followed, the gradients are not combined again. The
        gradients that `closure` computes are combined each time it has been called; for LBFGS, which decides by the
        loss, the loss that it returns is combined too.
        """
        with part("DistributedOptimizer.step"):
            if self._should_synchronize:
                self._synchronize_if_due(closure is not None)
            self._hear()
            self._count_step()
            if closure is None:
                return super().step()
            return super().step(self._synchronizing(closure))

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronize_if_due(self, has_closure: bool) -> None:
        if self._has_combined():
            if self._is_expected_to_skip:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(); the "
                    "gradients are not combined again. Write: with optimizer.skip_synchronize(): optimizer.step()",
                    stacklevel=4,
                )
        elif not has_closure or self._has_started():
            self._synchronize()

    def _has_combined(self) -> bool:
        """Whether the present gradients have been combined, and not yet used."""
        return (
            self._synchronized
            and not self._has_started()
            and any(parameter.grad is not None for parameter in self._parameter_names)
        )

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def synchronized() -> Any:
            loss = closure()
            if not self._should_synchronize:
                return loss
            if not self._has_combined():
                self._synchronize()
            self._synchronized = False
            return self._combined_loss(loss) if isinstance(self, torch.optim.LBFGS) else loss

        return synchronized

    def _combined_loss(self, loss: Any) -> Tensor:
        """Return the loss of all ranks: with their own losses, ranks would make different steps."""
        mine = torch.as_tensor(loss, device="cpu").detach()
        name = f"{PREFIX}.{joined(list(self._parameter_names.values()))}.loss"
        options = self._options
        return ops.allreduce(
            mine,
            name=name,
            op=options.op,
            process_set=options.process_set,
            weight=options.weight,
            divisor=options.divisor_of_any,
        )

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients; what backward passes have accumulated is no part of the next step.

        Raises:
            AssertionError: gradients are being combined.
        """
        if any(group.operation is not None or group.sparse for group in self._groups):
            raise error_of_early_zero_grad(self._options, "combined")
        self._synchronized = False
        if self._has_started():
            self._restart()
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the wrapped optimizer's state, after waiting for gradients that are being combined.

        All ranks must call it then. The combined gradients remain, for step() or zero_grad(); those that were changed
        meanwhile, or whose world has failed, are cleared. The count of backward passes restarts.

        Raises:
            MismatchError: as step() does.
        """
        if self._ended_in not in (None, world.epoch):  # what has begun since went with its world
            self._hear_nobody()
            self._synchronized = False
        elif any(group.has_complete for group in self._groups):
            self._synchronize_before_load()
        self._restart()
        super().load_state_dict(*args, **kwargs)

    def _synchronize_before_load(self) -> None:
        try:
            self._synchronize(has_come_to_step=False)
        except MismatchError:
            raise
        except (AssertionError, HorovodInternalError, NotInitializedError):
            self._synchronized = False
            super().zero_grad()
