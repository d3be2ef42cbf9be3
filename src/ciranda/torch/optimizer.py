"""DistributedOptimizer: an optimizer that combines the gradients of all ranks before it steps.

As soon as the backward pass has computed a gradient, its allreduce starts, in place, while the backward pass goes on;
`step()` waits for all of them and then makes the wrapped optimizer's step.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import circle, engine
from ciranda._ops import Average, choose_op
from ciranda.errors import InvalidArgumentError, NotSupportedError
from ciranda.process_sets import ProcessSet, global_process_set, require_global
from ciranda.torch.compression import Compression, Compressor
from ciranda.torch.tensors import contiguous, for_engine

Tensor = torch.Tensor
Groups = int | Sequence[Sequence[Tensor]] | None
_Hook = Callable[[Tensor], None]

#: Small gradients travel together up to this size.
_SMALL_GROUP_BYTES = 128 << 10
_LONGEST_NAME = 200


class _Reduction:
    """The allreduce of one parameter's gradient, or of a group of them, step after step.

    The hooks on the parameters refer to this, and this to neither optimizer nor parameters, so that no cycle keeps a
    dropped optimizer alive (which would go on reducing).
    """

    __slots__ = ("arrived", "compression", "finishers", "operation", "passes", "prepared", "remaining", "waiting_for")

    def __init__(
        self, prepared: _core.PreparedRequest, n_members: int, passes: int, compression: type[Compressor]
    ) -> None:
        self.prepared = prepared
        self.compression = compression
        self.passes = passes
        #: Backward passes that each member still has to make.
        self.remaining = [passes] * n_members
        #: Members whose gradient is not there yet.
        self.waiting_for = n_members
        self.arrived: list[Tensor | None] = [None] * n_members
        self.operation: _core.Operation | None = None
        #: What is left to do when the operation is done: nothing, for a contiguous uncompressed gradient.
        self.finishers: list[Callable[[], None]] = []

    def make_hook(self, member: int) -> _Hook:
        """Return what to call whenever a gradient of `member` has been accumulated."""
        remaining = self.remaining

        def on_gradient(parameter: Tensor) -> None:
            left = remaining[member] = remaining[member] - 1
            if left == 0:
                self.add(member, parameter)
            elif left < 0:
                raise AssertionError(
                    f"the gradient of {self.prepared.name} was computed more than {self.passes} times (its "
                    "backward_passes_per_step) before step(); raise backward_passes_per_step to accumulate gradients"
                )

        return on_gradient

    def add(self, member: int, parameter: Tensor) -> None:
        """Take this step's gradient of `member`, zeros if it has none; submit when all members are there."""
        gradient = parameter.grad
        if gradient is None:
            # Another rank may well have one, and would wait for ours.
            gradient = parameter.grad = torch.zeros_like(parameter)
        self.arrived[member] = self._to_send(gradient)
        self.waiting_for -= 1
        if self.waiting_for == 0:
            self._submit()

    def _to_send(self, gradient: Tensor) -> Tensor:
        if gradient.is_sparse:
            raise NotSupportedError(
                f"the gradient of {self.prepared.name} is sparse, and sparse gradients are not available yet; "
                "make the layer produce dense ones (Embedding(sparse=False))"
            )
        compression = self.compression
        if compression is Compression.none:
            work = contiguous(gradient)
            if work is not gradient:
                self.finishers.append(lambda: _copy(gradient, work))
            return work
        compressed, context = compression.compress(gradient)
        work = contiguous(compressed)
        self.finishers.append(lambda: _copy(gradient, compression.decompress(work, context)))
        return work

    def _submit(self) -> None:
        connected = circle.engine or engine()  # the second raises
        tensors = [for_engine(tensor) for tensor in self.arrived if tensor is not None]
        self.operation = connected.submit_prepared(self.prepared, tensors[0] if len(tensors) == 1 else tensors)

    @property
    def has_started(self) -> bool:
        """Whether a gradient has arrived since the last reset."""
        return self.waiting_for < len(self.arrived)

    def complete(self, parameters: Sequence[Tensor]) -> _core.Operation:
        """Submit what has not been submitted, with zeros for the gradients that are missing; return the operation."""
        if self.operation is None:
            for member, parameter in enumerate(parameters):
                if self.arrived[member] is None:
                    self.add(member, parameter)
        assert self.operation is not None
        return self.operation

    def finish(self) -> None:
        """Bring the results to the gradients. REQUIRES: the operation is done."""
        for finisher in self.finishers:
            finisher()

    def reset(self) -> None:
        """Be ready for the next step."""
        n_members = len(self.arrived)
        self.remaining[:] = [self.passes] * n_members
        self.waiting_for = n_members
        self.arrived = [None] * n_members
        self.operation = None
        self.finishers.clear()


def _copy(gradient: Tensor, result: Tensor) -> None:
    with torch.no_grad():
        gradient.copy_(result)


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


class _Options:
    """The arguments of DistributedOptimizer that outlive it."""

    def __init__(self, compression: type[Compressor], passes: int, op: int, predivide: float) -> None:
        self.compression = compression
        self.passes = passes
        self.op = op
        self.predivide = predivide

    def prepare(self, name: str) -> _core.PreparedRequest:
        prescale, postscale = (1.0 / self.predivide, self.predivide) if self.op == Average else (1.0, 1.0)
        return _core.PreparedRequest(f"DistributedOptimizer.{name}", self.op, prescale, postscale)


class _DistributedOptimizer(torch.optim.Optimizer):
    """The methods that DistributedOptimizer adds to the class that it wraps."""

    def _distribute(
        self, options: _Options, names: dict[Tensor, str], groups: list[list[Tensor]], frozen: list[Tensor]
    ) -> None:
        self._options = options
        self._names = names
        self._groups: list[list[Tensor]] = []
        self._reductions: list[_Reduction] = []
        self._frozen = frozen
        self._hooks: list[Any] = []
        self._synchronized = False
        self._should_synchronize = True
        weakref.finalize(self, _remove, self._hooks).atexit = False
        for group in groups:
            self._add_reduction(group)

    def _add_reduction(self, group: list[Tensor]) -> None:
        prepared = self._options.prepare(_joined([self._names[parameter] for parameter in group]))
        reduction = _Reduction(prepared, len(group), self._options.passes, self._options.compression)
        self._groups.append(group)
        self._reductions.append(reduction)
        for member, parameter in enumerate(group):
            hook = reduction.make_hook(member)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _adopt_thawed(self) -> None:
        """Reduce the gradients of parameters that were frozen when the optimizer was wrapped, and no longer are."""
        thawed = [parameter for parameter in self._frozen if parameter.requires_grad]
        if thawed:
            self._frozen = [parameter for parameter in self._frozen if not parameter.requires_grad]
            for parameter in thawed:
                self._add_reduction([parameter])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as torch.optim.Optimizer does; their gradients are reduced too."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self._names[parameter] = f"allreduce.noname.{len(self._names)}"
            if parameter.requires_grad:
                self._add_reduction([parameter])
            else:
                self._frozen.append(parameter)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes accumulate locally before the gradients are combined."""
        self._options.passes = _positive(passes)
        for reduction in self._reductions:
            reduction.passes = passes
            if not reduction.has_started:
                reduction.reset()

    def synchronize(self) -> None:
        """Wait until all gradients are combined; start those that the backward pass did not reach.

        For what has to happen between the backward pass and the step, as gradient clipping; then step within
        `skip_synchronize()`.
        """
        if self._frozen:
            self._adopt_thawed()
        pairs = zip(self._reductions, self._groups, strict=True)
        try:
            _core.wait_all([reduction.operation or reduction.complete(group) for reduction, group in pairs])
            for reduction in self._reductions:
                if reduction.finishers:
                    reduction.finish()
        finally:
            for reduction in self._reductions:
                reduction.reset()
        self._synchronized = True

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
        return any(reduction.has_started for reduction in self._reductions)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Combine the gradients, then make the wrapped optimizer's step.

        After an explicit `synchronize()` that no backward pass followed, the gradients are not combined again. The
        gradients that `closure` computes are combined each time it has been called.
        """
        is_due = closure is None and not self._synchronized
        if self._should_synchronize and (is_due or self._has_started()):
            self.synchronize()
        self._synchronized = False
        if closure is None:
            return super().step()
        return super().step(self._synchronizing(closure))

    # What torch adds around step(), once a class, stands around the wrapped optimizer's already.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def synchronized() -> Any:
            loss = closure()
            if self._should_synchronize and self._has_started():
                self.synchronize()
                self._synchronized = False
            return loss

        return synchronized

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients. Raises AssertionError while they are being combined."""
        if any(reduction.operation is not None for reduction in self._reductions):
            raise AssertionError(
                "zero_grad() was called between backward() and step() or synchronize(), while the gradients are being "
                "combined; call it before backward() or after step()"
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load the wrapped optimizer's state. What the last backward pass has begun is dropped."""
        for reduction in self._reductions:
            reduction.reset()
        self._synchronized = False
        super().load_state_dict(*args, **kwargs)


def _positive(passes: int) -> int:
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
    return passes


def _name_parameters(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> dict[Tensor, str]:
    """Return a name for every parameter of the optimizer, and check the names that were given."""
    everything = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        return {parameter: f"allreduce.noname.{index}" for index, parameter in enumerate(everything)}
    named = list(named_parameters)
    if any(not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)) for item in named):
        raise InvalidArgumentError(
            "named_parameters must be pairs of name and parameter, as model.named_parameters() gives them"
        )
    counts: dict[str, int] = {}
    for name, _ in named:
        counts[name] = counts.get(name, 0) + 1
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"parameter names in named_parameters must be unique; found twice: {twice}")
    names = {parameter: name for name, parameter in named}
    n_unnamed = sum(parameter not in names for parameter in everything)
    if n_unnamed:
        raise InvalidArgumentError(
            f"named_parameters was given, but {n_unnamed} of the optimizer's {len(everything)} parameters are not "
            "among them"
        )
    return {parameter: names[parameter] for parameter in everything}


def _joined(names: list[str]) -> str:
    """Return the name of a group of parameters; the first name alone would make it unique."""
    joined = "+".join(names)
    return joined if len(joined) <= _LONGEST_NAME else f"{names[0]}+...+{names[-1]} ({len(names)} parameters)"


def _join_small(parameters: list[Tensor]) -> list[list[Tensor]]:
    """Put neighbours together up to a size that costs hardly more to move than to announce.

    From the last to the first, as the backward pass reaches them.
    """
    joined: list[list[Tensor]] = []
    n_bytes = 0
    for parameter in reversed(parameters):
        more = parameter.numel() * parameter.element_size()
        if not joined or n_bytes + more > _SMALL_GROUP_BYTES:
            joined.append([])
            n_bytes = 0
        joined[-1].append(parameter)
        n_bytes += more
    return joined


def _make_groups(parameters: list[Tensor], groups: Groups) -> list[list[Tensor]]:
    """Divide the parameters into those whose gradients travel together."""
    if groups is None:
        return _join_small(parameters)
    if isinstance(groups, int):
        if groups < 0:
            raise InvalidArgumentError(f"groups must not be negative; got {groups}")
        n_groups = min(groups, len(parameters))
        if n_groups == 0:
            return _join_small(parameters)
        bounds = [len(parameters) * index // n_groups for index in range(n_groups + 1)]
        return [parameters[start:end] for start, end in pairwise(bounds)]
    if not all(isinstance(group, (list, tuple)) for group in groups):
        raise InvalidArgumentError("groups must be a number, or a list of lists of parameters")
    grouped = [parameter for group in groups for parameter in group]
    if len(set(grouped)) != len(grouped):
        raise InvalidArgumentError("a parameter stands in more than one group")
    known = set(parameters)
    chosen = [[parameter for parameter in group if parameter in known] for group in groups]
    alone = set(parameters) - set(grouped)
    return [group for group in chosen if group] + [[parameter] for parameter in parameters if parameter in alone]


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
) -> Any:
    """Return an optimizer of `optimizer`'s own class whose `step()` uses the gradients of all ranks.

    It takes over the state and the parameter groups of `optimizer`, which should not be used any more. A parameter
    that got no gradient on this rank takes part with zeros.

    Args:
        optimizer: any torch optimizer.
        named_parameters: as `model.named_parameters()`: all parameters of the optimizer, with unique names that are
            the same on every rank. Without them parameters are known by their position.
        compression: what to send, as Compression.none or Compression.fp16 or a class of your own.
        backward_passes_per_step: how many backward passes accumulate locally before gradients are combined.
        op: Average, Sum, Min, Max or Product.
        gradient_predivide_factor: f divides gradients by f before the sum and multiplies by f / size after it.
        num_groups: deprecated, use `groups`.
        groups: a number: that many groups of parameters whose gradients are combined together; or the groups
            themselves, as lists of parameters; others go alone. By default small neighbours go together.
        sparse_as_dense: must be False, for now.
        process_set: only the set of all ranks, for now.

    Raises:
        InvalidArgumentError: (a ValueError) names are missing or not unique, or an argument is out of range.
        NotSupportedError: (a ValueError) an argument asks for what is not available yet.
    """
    require_global(process_set)
    chosen = choose_op(op, None)
    if sparse_as_dense:
        raise NotSupportedError("sparse_as_dense=True: sparse gradients are not available yet")
    if gradient_predivide_factor != 1.0 and chosen != Average:
        raise InvalidArgumentError("gradient_predivide_factor can only be used with op=Average")
    if isinstance(optimizer, _DistributedOptimizer):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if num_groups:
        warnings.warn("the argument `num_groups` is deprecated: use `groups`", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    options = _Options(compression, _positive(backward_passes_per_step), chosen, gradient_predivide_factor)
    names = _name_parameters(optimizer, named_parameters)
    trained = [parameter for parameter in names if parameter.requires_grad]
    frozen = [parameter for parameter in names if not parameter.requires_grad]
    wrapped_class = type(optimizer)
    combined: Any = type(wrapped_class.__name__, (_DistributedOptimizer, wrapped_class), {})
    distributed = combined.__new__(combined)
    # Everything but a step() that a scheduler has put on the instance: it would hide ours.
    distributed.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    distributed._distribute(options, names, _make_groups(trained, groups), frozen)
    return distributed
