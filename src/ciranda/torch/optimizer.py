"""DistributedOptimizer: an optimizer that combines the gradients of all ranks before it steps.

As soon as the backward pass has computed a gradient, its allreduce starts, in place, while the backward pass goes on;
`step()` waits for all of them and then makes the wrapped optimizer's step; or leaves that to the next forward pass
(overlapping_optimizer.py).
"""

from __future__ import annotations

import itertools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ciranda import _core
from ciranda._frameworks.groups import make_groups
from ciranda._frameworks.marks import distributed_among
from ciranda._frameworks.naming import joined, name_parameters, next_number
from ciranda._frameworks.options import PREFIX, Options, check_factor, positive
from ciranda._numbering import Era, era_of
from ciranda._ops import Adasum, Average, Divisor, Handle, choose_op, divides_by_all, is_done_within
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch import ops
from ciranda.torch.adasum import AdasumOptimizer
from ciranda.torch.buckets import Bucket, share
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.gradients import GradientGroup
from ciranda.torch.own_gradients import share_overflow
from ciranda.torch.presence import Presence
from ciranda.torch.wrapping import WrappedOptimizer, wrap

Tensor = torch.Tensor
Groups = int | Sequence[Sequence[Tensor]] | None

_PATIENCE = 0.001  # seconds

#: The method of torch.amp.GradScaler that divides gradients by its scale.
_CHANGED_BY_SCALER = "_unscale_grads_"


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


def is_asked_by_scaler() -> bool:
    """Whether it is GradScaler that reads `param_groups`, to change the gradients, of which it tells in no other way.

    What it does to them torch counts as no new version, so that it would not be noticed afterwards either.
    """
    frame = sys._getframe(2)
    while frame.f_code.co_name == "param_groups" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name == _CHANGED_BY_SCALER


class GradientOptimizer(WrappedOptimizer):
    """The methods that DistributedOptimizer adds to the class that it wraps."""

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._groups: list[GradientGroup] = []
        self._hooks: list[Any] = []
        self._warned: set[str] = set()
        self._synchronized = False
        self._should_synchronize = True
        #: Whether who called synchronize() ought to step within skip_synchronize().
        self._is_expected_to_skip = False
        #: Since when steps are counted, how many there were, and whether the next has begun.
        self._era: Era | None = None
        self._n_steps = 0
        self._has_told = False
        #: What is under way between the ranks about the step that has begun.
        self._numbers: Handle[Tensor] | None = None
        self._told: _core.Operation | None = None
        self._presence = Presence(joined(list(names.values())), options, self._priority_of(list(names)))
        weakref.finalize(self, _remove, self._hooks).atexit = False
        super()._distribute(options, names, members)

    def _priority_of(self, _parameters: list[Tensor]) -> int:
        """Return the priority with which the gradients of these parameters travel."""
        return 0

    def _add_group(self, parameters: list[Tensor]) -> None:
        if not self._takes_part:
            return
        bucket = Bucket(parameters) if self._options.has_buckets else None
        names = [self._parameter_names[parameter] for parameter in parameters]
        group = GradientGroup(names, self._options, bucket, self._priority_of(parameters))
        self._members.append(parameters)
        self._groups.append(group)
        for member, parameter in enumerate(parameters):
            hook = group.make_hook(member)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _adopt_thawed(self) -> None:
        """Combine the gradients of parameters that were frozen when the optimizer was wrapped, and no longer are."""
        if self._frozen:
            self._adopt([parameter for parameter in self._frozen if parameter.requires_grad])

    @property
    def param_groups(self) -> Any:
        """The parameter groups. Who reads them when a backward pass is complete gets to gradients that are combined.

        So does `GradScaler`, which divides the gradients by its scale right before it calls step(), also where a
        backward pass has not reached all of them: only those that nobody has begun to combine are its own to change.
        """
        groups = vars(self).get("_groups")
        if groups and self._should_synchronize:
            is_complete = all(group.is_under_way for group in groups)
            if is_complete or (self._has_started() and is_asked_by_scaler()):
                self._synchronize(has_come_to_step=False)
        if groups is not None and self._takes_part and is_asked_by_scaler():
            share_overflow(self._parameter_names, self._options.process_set)
        return vars(self)["param_groups"]

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        vars(self)["param_groups"] = value

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes accumulate locally before the gradients are combined."""
        return self._options.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes accumulate locally; gradients not yet combined are given all of them."""
        self._options.passes = positive(passes)
        for group in self._groups:
            group.restart_passes()

    def set_weight(self, weight: float | None) -> None:
        """Say what this rank's gradients count in the average from now on, as the number of its samples.

        What comes out is the sum of weight * gradient over the sum of the weights, so that ranks whose batches differ
        in size train as one process does with all of them. 0 is a rank that has no samples, and need not make a
        backward pass. All ranks must set weights, or none; None ends it. Call it before the backward pass.

        Raises:
            InvalidArgumentError: the weight is negative or not finite, or the optimizer's op is not Average.
            AssertionError: a backward pass has begun, whose gradients may be under way.
        """
        if weight is not None and (self._options.op != Average or not 0 <= weight < float("inf")):
            raise InvalidArgumentError(f"set_weight({weight}): weights are 0 or more, and for op=Average only")
        if self._has_started():
            raise AssertionError("set_weight() was called between backward() and step(); call it before backward()")
        self._options.weight = weight

    # --- combining ---

    def synchronize(self) -> None:
        """Wait until all gradients are combined; start those that the backward pass did not reach.

        For what has to happen between the backward pass and the step, as gradient clipping; then step within
        `skip_synchronize()`. Every rank must call it.

        Raises:
            AssertionError: a gradient was changed while it travelled.
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
            missing = self._combine(has_come_to_step) if self._takes_part else []
        except BaseException:
            self._numbers = self._told = None
            raise
        finally:
            for group in self._groups:
                group.reset()
        self._synchronized = True
        self._is_expected_to_skip = False
        self._warn_of_missing(missing)

    def _tell(self) -> None:
        """Start to tell the others what this rank has, and that it has come to this step."""
        era = era_of(self._options.process_set)
        if self._era != era:
            self._era, self._n_steps = era, 0
            self._numbers = self._told = None
        self._hear()  # about a step that was left out
        self._numbers = self._tell_number()
        self._told = self._presence.tell(self._groups, self._members, self._n_steps)
        self._has_told = True

    def _has_heard(self) -> bool:
        """Whether _hear() would not block."""
        return all(each.poll() for each in (self._numbers, self._told) if each is not None)

    def _hear(self) -> None:
        """Wait for what the others tell, and make sure that it goes together with what this rank has."""
        if self._told is None:
            return
        self._share_buckets()
        numbers, told = self._numbers, self._told
        self._numbers = self._told = None
        self._check_number(numbers)
        told.wait()
        self._presence.check(self._groups)

    def _share_buckets(self) -> None:
        if self._options.shares_buckets:
            share([group.bucket for group in self._groups if group.bucket is not None])

    def _count_step(self) -> None:
        self._n_steps += self._has_told
        self._has_told = self._synchronized = False

    def _combine(self, has_come_to_step: bool) -> list[str]:
        """Return the names of the gradients that other ranks have and this one does not."""
        is_usual = all(group.is_usual for group in self._groups)
        self._tell()
        if has_come_to_step or not is_usual:
            self._hear()
        else:
            self._wait_before_step()
        kinds = [] if is_usual else self._presence.kinds()
        missing: list[str] = []
        ends = itertools.accumulate(map(len, self._members))
        kinds_of = [kinds[end - len(group) : end] for group, end in zip(self._members, ends, strict=True)]
        groups = list(zip(self._groups, self._members, kinds_of, strict=True))
        for group, parameters, its_kinds in groups:
            missing += [] if group.is_under_way else group.complete(parameters, its_kinds)
        _core.wait_all([group.operation for group in self._groups if group.operation is not None])
        for group, parameters, its_kinds in groups:
            group.finish(parameters, its_kinds)
        return missing

    def _wait_before_step(self) -> None:
        """Wait for the gradients alone, as the others may need this rank to go on before they come to their step."""
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
                f"parameters got a gradient on other ranks, but none on this one, which takes part with zeros: "
                f"{', '.join(new)} (said once for each parameter)",
                stacklevel=4,
            )

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this, step() takes the gradients as they are. Call synchronize() before."""
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
        if self._should_synchronize:
            self._synchronize_if_due(closure is not None)
        self._count_step()
        if closure is None:
            return super().step()
        return super().step(self._synchronizing(closure))

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronize_if_due(self, has_closure: bool) -> None:
        if self._has_combined():
            self._hear()
            if self._is_expected_to_skip:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(); the "
                    "gradients are not combined again. Write: with optimizer.skip_synchronize(): optimizer.step()",
                    stacklevel=4,
                )
        elif not has_closure or self._has_started():
            self._synchronize()

    def _has_combined(self) -> bool:
        """Whether the gradients that there are have been combined, and not yet used."""
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
        """Return the loss of all ranks. Ranks that decided by their own would make different steps."""
        mine = torch.as_tensor(loss).detach()
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
        """Clear the gradients. Raises AssertionError while they are being combined."""
        if any(group.operation is not None or group.sparse for group in self._groups):
            raise AssertionError(
                "zero_grad() was called between backward() and step() or synchronize(), while the gradients are being "
                "combined; call it before backward() or after step()"
            )
        self._synchronized = False
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the wrapped optimizer's state. What the last backward pass has begun is dropped."""
        for group in self._groups:
            group.reset()
        self._numbers = self._told = None
        self._synchronized = False
        super().load_state_dict(*args, **kwargs)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient_as_bucket_view: bool = False,
    divisor: Divisor = "contributors",
    overlap_forward: torch.nn.Module | None = None,
) -> Any:
    """Return an optimizer of `optimizer`'s own class whose `step()` uses the gradients of all ranks.

    It takes over the state and the parameter groups of `optimizer`, which should not be used any more. A parameter
    that got no gradient on this rank takes part with zeros; if it got none on any rank it is left alone. The gradients
    of parameters whose attribute `is_distributed` is True, as those of `ciranda.torch.nn.ShardedLinear`, stay each
    rank's own.

    Args:
        optimizer: any torch optimizer.
        named_parameters: as `model.named_parameters()`: all parameters of the optimizer, with unique names that are
            the same on every rank. Without them parameters are known by their position.
        compression: what to send, as Compression.none or Compression.fp16 or a class of your own.
        backward_passes_per_step: how many backward passes accumulate locally before gradients are combined.
        op: Average, Sum, Min, Max or Product; or Adasum, for which each rank makes its own step, and the changes that
            the steps made are combined.
        gradient_predivide_factor: f multiplies gradients by 1 / f before they are averaged, and by f afterwards.
        num_groups: deprecated, use `groups`.
        groups: a number: that many groups of parameters whose gradients are combined together; or the groups
            themselves, as lists of parameters; others go alone. By default small neighbours go together.
        sparse_as_dense: combine sparse gradients as dense ones, and make them sparse again for the step. By default the
            rows of all ranks are gathered.
        process_set: the ranks whose gradients are combined; the others step with their own.
        gradient_as_bucket_view: the gradients that are combined together also lie together in memory, as one tensor
            for each dtype, which travels as one. On one host they lie, from the second step on, in memory that the
            ranks share, and are combined where they are. Not with op=Adasum, which combines no gradients.
        divisor: what an average divides by while ranks have joined: "contributors", the number of ranks that take part;
            or "world", that of all ranks of the process set, as Horovod does. Weighted averages divide by the sum of
            the weights.
        overlap_forward: the model: `step()` waits for nothing, and each module's parameters are updated right before
            the module's next forward pass, while later ones' gradients still travel. Who reads parameters otherwise
            than through the model or its state_dict() calls `synchronize()` first. Not with op=Adasum or LBFGS.

    Raises:
        InvalidArgumentError: (a ValueError) names are missing or not unique, or an argument is out of range.
        NotSupportedError: (a ValueError) an argument asks for what is not available yet.
    """
    id_of(process_set)
    chosen = choose_op(op, None)
    check_factor(gradient_predivide_factor, chosen)
    if isinstance(optimizer, WrappedOptimizer):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if num_groups:
        warnings.warn("the argument `num_groups` is deprecated: use `groups`", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    passes = positive(backward_passes_per_step)
    divides_by_all(divisor)  # which refuses what is none
    if gradient_as_bucket_view and chosen == Adasum:
        raise InvalidArgumentError("gradient_as_bucket_view=True cannot be used with op=Adasum: no gradients travel")
    if overlap_forward is not None and (chosen == Adasum or isinstance(optimizer, torch.optim.LBFGS)):
        raise InvalidArgumentError("overlap_forward cannot be used with op=Adasum or LBFGS: they step with all at once")
    options = Options(
        compression,
        passes,
        chosen,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
        has_buckets=gradient_as_bucket_view,
        divisor=divisor,
    )
    if named_parameters is None:
        options.number = next_number(process_set)
    everything = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = name_parameters(everything, named_parameters, options.number, torch.Tensor)
    own = distributed_among(names)
    trained = [parameter for parameter in names if parameter.requires_grad and parameter not in own]
    members = make_groups(trained, groups, torch.Tensor, lambda tensor: tensor.nbytes)
    if overlap_forward is not None:
        from ciranda.torch.overlapping_optimizer import OverlappingOptimizer

        overlapping = wrap(optimizer, OverlappingOptimizer, options, names, members)
        overlapping.overlap_forward(overlap_forward)
        return overlapping
    return wrap(optimizer, AdasumOptimizer if chosen == Adasum else GradientOptimizer, options, names, members)
