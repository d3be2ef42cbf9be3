"""The gradients of a DistributedOptimizer on their way: groups of them, combined step after step.

A backward pass that computes a gradient calls the group's hook, and when all members of the group are there the
group's allreduce starts, in place. Gradients that a rank did not compute are dealt with when the optimizer waits: the
ranks tell each other what they have (presence.py), and

- what nobody has is left out: the gradient stays None, as in one process;
- what others have takes part with zeros, or without rows if it is sparse.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.naming import joined
from ciranda._frameworks.options import PREFIX, Options
from ciranda.torch.buckets import Bucket
from ciranda.torch.sparse import SparseReduction
from ciranda.torch.tensors import all_contiguous, all_for_engine, contiguous

Tensor = torch.Tensor
Hook = Callable[[Tensor], None]
_is_sparse = attrgetter("is_sparse")


class Kind(enum.IntFlag):
    """What a rank has of a parameter's gradient; of all ranks together, what any of them has."""

    NONE = 0
    DENSE = 1
    SPARSE = 2


class GradientGroup:
    """Gradients that are combined by one allreduce, step after step.

    The hooks on the parameters refer to this, and this to neither optimizer nor parameters, so that no cycle keeps a
    dropped optimizer alive (which would go on reducing).
    """

    __slots__ = (
        "_come",
        "_finishers",
        "_options",
        "_prepared",
        "_remaining",
        "_waiting_for",
        "_watched",
        "bucket",
        "densified",
        "is_deferred",
        "is_here",
        "names",
        "operation",
        "sparse",
    )

    def __init__(self, names: list[str], options: Options, bucket: Bucket | None = None, priority: int = 0) -> None:
        self.names = names
        self.bucket = bucket
        self._options = options
        self._prepared = options.prepare(joined(names), priority)
        #: Backward passes that each member still has to make.
        self._remaining = [options.passes] * len(names)
        self.operation: _core.Operation | None = None
        #: The members whose gradients are sparse, and do not travel with the others.
        self.sparse: dict[int, SparseReduction] = {}
        #: The members whose sparse gradients were made dense, and their numbers of sparse dimensions.
        self.densified: dict[int, int] = {}
        #: What is left to do when the operation is done: nothing, for contiguous uncompressed gradients.
        self._finishers: list[Callable[[], None]] = []
        self.reset()

    def reset(self) -> None:
        """Be ready for the next step."""
        n_members = len(self.names)
        self._remaining[:] = [self._options.passes] * n_members
        self._waiting_for = n_members
        self.is_here = [False] * n_members
        #: The parameters whose gradients have come, until all are there.
        self._come: list[Tensor | None] = [None] * n_members
        self.operation = None
        #: Whether the step has been made but for its end, which the next forward pass waits for.
        self.is_deferred = False
        self.sparse.clear()
        self.densified.clear()
        self._finishers.clear()
        self._watched: tuple[Tensor, int] | None = None

    def restart_passes(self) -> None:
        """Let every member that is not there yet make all of its backward passes."""
        for member, is_here in enumerate(self.is_here):
            if not is_here:
                self._remaining[member] = self._options.passes

    @property
    def is_under_way(self) -> bool:
        """Whether all members have come, and are being combined."""
        return self._waiting_for == 0

    @property
    def is_usual(self) -> bool:
        """Whether every member has come with a dense gradient."""
        return self._waiting_for == 0 and not self.sparse and not self.densified

    def kinds(self, parameters: Sequence[Tensor]) -> list[Kind]:
        """Return what this rank has of each member."""
        return [self._kind(member, parameter.grad) for member, parameter in enumerate(parameters)]

    def _kind(self, member: int, gradient: Tensor | None) -> Kind:
        if gradient is None:
            return Kind.NONE
        return Kind.SPARSE if gradient.is_sparse or member in self.densified else Kind.DENSE

    @property
    def has_started(self) -> bool:
        """Whether a backward pass has reached a member since the last step."""
        if self.is_deferred:
            return False
        passes = self._options.passes
        return self._waiting_for < len(self.names) or self._remaining.count(passes) < len(self.names)

    # --- a gradient comes ---

    def make_hook(self, member: int) -> Hook:
        """Return what to call whenever a gradient of `member` has been accumulated."""
        remaining = self._remaining

        def on_gradient(parameter: Tensor) -> None:
            left = remaining[member] = remaining[member] - 1
            if left == 0:
                self.add(member, parameter)
            elif self.is_deferred:
                raise AssertionError(
                    f"the gradient of {PREFIX}.{self.names[member]} was computed before the parameter was updated with "
                    "the one before: a forward pass has read it without calling its module. Call synchronize() before "
                    "that, or leave out overlap_forward"
                )
            elif left < 0:
                raise AssertionError(
                    f"the gradient of {PREFIX}.{self.names[member]} was computed more than {self._options.passes} "
                    "times (its backward_passes_per_step) before step() or synchronize(); raise "
                    "backward_passes_per_step to accumulate gradients"
                )

        return on_gradient

    def add(self, member: int, parameter: Tensor) -> None:
        """Take this step's gradient of `member`; start when all members are there. REQUIRES: it has a gradient."""
        self._come[member] = parameter
        self._count_in(member)

    def _count_in(self, member: int) -> None:
        self.is_here[member] = True
        self._waiting_for -= 1
        if self._waiting_for == 0:
            try:
                self._start()
            except BaseException:  # it is seen again, when the optimizer waits
                self._finishers.clear()
                self.is_here[member] = False
                self._waiting_for = 1
                raise

    def _start(self) -> None:
        """Send what has come, in one call: to look at each gradient as it comes costs a small model's step more."""
        come = self._come
        members = [member for member, each in enumerate(come) if each is not None and each.grad is not None]
        gradients: list[Any] = [come[member].grad for member in members]  # type: ignore[union-attr]
        if any(map(_is_sparse, gradients)):
            members = [member for member in members if not self._is_apart(member, come[member])]
            gradients = [come[member].grad for member in members]  # type: ignore[union-attr]
        if self.bucket is not None:
            gradients = [self.bucket.take(*pair) for pair in zip(members, gradients, strict=True)]
            for member, gradient in zip(members, gradients, strict=True):
                come[member].grad = gradient  # type: ignore[union-attr]
        if gradients:
            self._submit(members, self._prepare_to_send(gradients))
            self._watched = gradients[-1], gradients[-1]._version
        self._come = []

    def _is_apart(self, member: int, parameter: Tensor | None) -> bool:
        """Whether the gradient travels by itself, as sparse ones do; where they are not to, it is made dense."""
        assert parameter is not None
        gradient = parameter.grad
        assert gradient is not None
        if member in self.sparse or not gradient.is_sparse:
            return member in self.sparse
        if self._options.sparse_as_dense:
            self.densified[member] = gradient.sparse_dim()
            parameter.grad = gradient.to_dense()
            return False
        self._begin_sparse(member, gradient, parameter)
        return True

    def _begin_sparse(self, member: int, gradient: Tensor | None, parameter: Tensor) -> None:
        name = f"{PREFIX}.{self.names[member]}.sparse"
        options = self._options
        self.sparse[member] = SparseReduction(
            gradient,
            parameter,
            name,
            options.op,
            options.process_set,
            options.weight,
            options.divisor_of_any,
        )

    def _prepare_to_send(self, gradients: list[Tensor]) -> list[Tensor]:
        compression = self._options.compression
        if compression is not NoneCompressor:
            return [self._compressed(gradient, compression) for gradient in gradients]
        work = all_contiguous(gradients)
        for gradient, copy in zip(gradients, work, strict=True):
            if copy is not gradient:
                self._finishers.append(partial(_copy, gradient, copy))
        return work

    def _compressed(self, gradient: Tensor, compression: type[Compressor]) -> Tensor:
        compressed, context = compression.compress(gradient)
        work = contiguous(compressed)
        self._finishers.append(lambda: _copy(gradient, compression.decompress(work, context)))
        return work

    def _submit(self, members: list[int], to_send: list[Tensor]) -> None:
        connected = world.engine or engine()  # the second raises
        if self.bucket is not None and len(members) == len(self.names) and self.bucket.has_all(to_send):
            to_send = list(self.bucket.flats)
        tensors = all_for_engine(to_send)
        target = tensors[0] if len(tensors) == 1 else tensors
        self.operation = connected.submit_prepared(self._prepared, target, self._options.weight)

    # --- the optimizer waits ---

    def complete(self, parameters: Sequence[Tensor], kinds: Sequence[Kind]) -> list[str]:
        """Start with what there is. `kinds` says what all ranks together have of each member.

        Returns the names of the members that other ranks have and this one does not.
        """
        missing = []
        for member, parameter in enumerate(parameters):
            if self.is_here[member]:
                continue
            if parameter.grad is None and kinds[member]:
                missing.append(self.names[member])
            self._add_late(member, parameter, kinds[member])
        return missing

    def _add_late(self, member: int, parameter: Tensor, kind: Kind) -> None:
        if not kind:
            self._count_in(member)
        elif parameter.grad is not None:
            self.add(member, parameter)
        elif kind == Kind.SPARSE and not self._options.sparse_as_dense:
            self._begin_sparse(member, None, parameter)
            self._count_in(member)
        else:
            parameter.grad = torch.zeros_like(parameter)
            if kind == Kind.SPARSE:
                self.densified[member] = 1  # as embeddings have
            self.add(member, parameter)

    def finish(self, parameters: Sequence[Tensor], kinds: Sequence[Kind]) -> None:
        """Bring the results to the gradients. REQUIRES: the operation is done. `kinds` is as for complete().

        Raises:
            AssertionError: a gradient was changed while it travelled.
        """
        if self._watched is not None and self._watched[0]._version != self._watched[1]:
            raise AssertionError(
                f"gradients of {self._prepared.name} were changed between backward() and step(), while they were "
                "being combined; call synchronize() before what changes them (clipping, GradScaler.unscale_(), "
                "zero_grad()), and step within skip_synchronize()"
            )
        for finisher in self._finishers:
            finisher()
        for member, reduction in self.sparse.items():
            parameters[member].grad = reduction.wait()
        for member, n_sparse_dims in self.densified.items():
            gradient = parameters[member].grad
            if gradient is not None and kinds[member] == Kind.SPARSE:
                parameters[member].grad = gradient.to_sparse(n_sparse_dims)


def _copy(gradient: Tensor, result: Tensor) -> None:
    with torch.no_grad():
        gradient.copy_(result)
