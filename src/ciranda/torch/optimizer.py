"""DistributedOptimizer: an optimizer that combines the gradients of all ranks before it steps.

As soon as the backward pass has computed a gradient, its allreduce starts, in place, while the backward pass goes on;
`step()` waits for all of them and then makes the wrapped optimizer's step; or leaves that to the next forward pass
(overlapping_optimizer.py).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ciranda import _core
from ciranda._ops import Adasum, Average, Divisor, choose_op, divides_by_all
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of
from ciranda.torch import ops
from ciranda.torch.adasum import AdasumOptimizer
from ciranda.torch.buckets import Bucket, share
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.gradients import PREFIX, GradientGroup, Options, Presence
from ciranda.torch.naming import Groups, joined, make_groups, name_parameters
from ciranda.torch.wrapping import WrappedOptimizer, wrap

Tensor = torch.Tensor


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


class GradientOptimizer(WrappedOptimizer):
    """The methods that DistributedOptimizer adds to the class that it wraps."""

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        self._options = options
        self._names = names
        self._members: list[list[Tensor]] = []
        self._groups: list[GradientGroup] = []
        self._hooks: list[Any] = []
        self._warned: set[str] = set()
        self._synchronized = False
        self._should_synchronize = True
        #: Whether who called synchronize() ought to step within skip_synchronize().
        self._is_expected_to_skip = False
        self._presence = Presence(joined(list(names.values())), options, self._priority_of(list(names)))
        weakref.finalize(self, _remove, self._hooks).atexit = False
        #: Whether this rank's gradients are combined with others' at all.
        self._takes_part = options.process_set.included() is not False
        grouped = {parameter for group in members for parameter in group}
        self._frozen = [parameter for parameter in names if parameter not in grouped]
        for group in members:
            self._add_group(group)

    def _distribution(self) -> tuple[Any, ...]:
        return self._options, self._names, self._members

    def _priority_of(self, _parameters: list[Tensor]) -> int:
        """Return the priority with which the gradients of these parameters travel."""
        return 0

    def _add_group(self, parameters: list[Tensor]) -> None:
        if not self._takes_part:
            return
        bucket = Bucket(parameters) if self._options.has_buckets else None
        names = [self._names[parameter] for parameter in parameters]
        group = GradientGroup(names, self._options, bucket, self._priority_of(parameters))
        self._members.append(parameters)
        self._groups.append(group)
        for member, parameter in enumerate(parameters):
            hook = group.make_hook(member)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _adopt_thawed(self) -> None:
        """Combine the gradients of parameters that were frozen when the optimizer was wrapped, and no longer are."""
        thawed = [parameter for parameter in self._frozen if parameter.requires_grad]
        if thawed:
            self._frozen = [parameter for parameter in self._frozen if not parameter.requires_grad]
            for parameter in thawed:
                self._add_group([parameter])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as torch.optim.Optimizer does; their gradients are combined too."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self._names[parameter] = f"noname.added.{len(self._names)}"
            if parameter.requires_grad:
                self._add_group([parameter])
            else:
                self._frozen.append(parameter)

    @property
    def param_groups(self) -> Any:
        """The parameter groups. Who reads them when a backward pass is complete gets to gradients that are combined.

        For `GradScaler.step()`, which divides the gradients by its scale right before it calls step().
        """
        groups = vars(self).get("_groups")
        if groups and all(group.is_under_way for group in groups) and self._should_synchronize:
            self.synchronize()
            self._is_expected_to_skip = False
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
        self._options.passes = _positive(passes)
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
        if self._frozen:
            self._adopt_thawed()
        try:
            missing = self._combine() if self._takes_part else []
        finally:
            for group in self._groups:
                group.reset()
        self._synchronized = self._is_expected_to_skip = True
        self._warn_of_missing(missing)

    def _tell_presence(self) -> _core.Operation:
        if self._options.shares_buckets:
            share([group.bucket for group in self._groups if group.bucket is not None])
        return self._presence.tell(self._groups, self._members)

    def _combine(self) -> list[str]:
        """Return the names of the gradients that other ranks have and this one does not."""
        presence = self._tell_presence()
        missing: list[str] = []
        if not all(group.is_under_way for group in self._groups):
            presence.wait()
            kinds, start = self._presence.kinds(), 0
            for group, parameters in zip(self._groups, self._members, strict=True):
                missing += group.complete(parameters, kinds[start : start + len(parameters)])
                start += len(parameters)
        operations = [group.operation for group in self._groups if group.operation is not None]
        _core.wait_all([*operations, presence])
        for group, parameters in zip(self._groups, self._members, strict=True):
            group.finish(parameters)
        return missing

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
        self._synchronized = False
        if closure is None:
            return super().step()
        return super().step(self._synchronizing(closure))

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronize_if_due(self, has_closure: bool) -> None:
        if self._synchronized and not self._has_started():
            if self._is_expected_to_skip:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(); the "
                    "gradients are not combined again. Write: with optimizer.skip_synchronize(): optimizer.step()",
                    stacklevel=4,
                )
        elif not has_closure or self._has_started():
            self.synchronize()

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def synchronized() -> Any:
            loss = closure()
            if self._should_synchronize and self._has_started():
                self.synchronize()
                self._synchronized = False
                if isinstance(self, torch.optim.LBFGS):
                    loss = self._combined_loss(loss)
            return loss

        return synchronized

    def _combined_loss(self, loss: Any) -> Tensor:
        """Return the loss of all ranks. Ranks that decided by their own would make different steps."""
        mine = torch.as_tensor(loss).detach()
        name = f"{PREFIX}.{joined(list(self._names.values()))}.loss"
        options = self._options
        return ops.allreduce(
            mine,
            name=name,
            op=options.op,
            process_set=options.process_set,
            weight=options.weight,
            divisor="contributors" if options.divisor == "contributors" else "world where averaged",
        )

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients. Raises AssertionError while they are being combined."""
        if any(group.operation is not None or group.sparse for group in self._groups):
            raise AssertionError(
                "zero_grad() was called between backward() and step() or synchronize(), while the gradients are being "
                "combined; call it before backward() or after step()"
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the wrapped optimizer's state. What the last backward pass has begun is dropped."""
        for group in self._groups:
            group.reset()
        self._synchronized = False
        super().load_state_dict(*args, **kwargs)


def _positive(passes: int) -> int:
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
    return passes


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
    that got no gradient on this rank takes part with zeros; if it got none on any rank it is left alone.

    Args:
        optimizer: any torch optimizer.
        named_parameters: as `model.named_parameters()`: all parameters of the optimizer, with unique names that are
            the same on every rank. Without them parameters are known by their position.
        compression: what to send, as Compression.none or Compression.fp16 or a class of your own.
        backward_passes_per_step: how many backward passes accumulate locally before gradients are combined.
        op: Average, Sum, Min, Max or Product; or Adasum, for which each rank makes its own step, and the changes that
            the steps made are combined.
        gradient_predivide_factor: f divides gradients by f before the sum and multiplies by f / size after it.
        num_groups: deprecated, use `groups`.
        groups: a number: that many groups of parameters whose gradients are combined together; or the groups
            themselves, as lists of parameters; others go alone. By default small neighbours go together.
        sparse_as_dense: make sparse gradients dense. By default the rows of all ranks are gathered.
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
    if gradient_predivide_factor != 1.0 and chosen != Average:
        raise InvalidArgumentError("gradient_predivide_factor can only be used with op=Average")
    if isinstance(optimizer, WrappedOptimizer):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if num_groups:
        warnings.warn("the argument `num_groups` is deprecated: use `groups`", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    passes = _positive(backward_passes_per_step)
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
    names = name_parameters(optimizer, named_parameters)
    members = make_groups([parameter for parameter in names if parameter.requires_grad], groups)
    if overlap_forward is not None:
        from ciranda.torch.overlapping_optimizer import OverlappingOptimizer

        overlapping = wrap(optimizer, OverlappingOptimizer, options, names, members)
        overlapping.overlap_forward(overlap_forward)
        return overlapping
    return wrap(optimizer, AdasumOptimizer if chosen == Adasum else GradientOptimizer, options, names, members)
