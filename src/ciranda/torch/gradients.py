"""The gradients of a DistributedOptimizer during their reduction: groups of them, combined step after step.

A backward pass that computes a gradient calls the group's hook, and when all members of the group are computed the
group's allreduce starts, in place. Gradients that a rank did not compute are handled when the optimizer waits: the
ranks exchange which gradients they have (presence.py), by a separate call or together with the gradients:

- a gradient that no rank has is left out: it stays None, as in one process;
- a gradient that other ranks have is contributed as zeros, or without rows if it is sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, cast

import torch

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.naming import joined
from ciranda._frameworks.options import PREFIX, Options
from ciranda._ops import ALLREDUCE
from ciranda._spans import Recorded, profiler
from ciranda.process_sets import id_of
from ciranda.torch.buckets import Bucket
from ciranda.torch.passes import error_of_more_passes
from ciranda.torch.presence import Kind, Presence, Told
from ciranda.torch.sparse import SparseReduction
from ciranda.torch.tensors import all_contiguous, all_for_engine, contiguous, laid_out_like

Tensor = torch.Tensor
Hook = Callable[[Tensor], None]
_is_sparse = attrgetter("is_sparse")


class GradientGroup:
    """Gradients that are combined by one allreduce, step after step.

    The hooks on the parameters refer to this, and this to neither optimizer nor parameters, so that no cycle keeps a
    dropped optimizer alive (which would go on reducing).
    """

    __slots__ = (
        "_come",
        "_finishers",
        "_lacking",
        "_options",
        "_prepared",
        "_presence",
        "_remaining",
        "_told",
        "_under_way",
        "_waiting_for",
        "bucket",
        "densified",
        "is_deferred",
        "is_here",
        "is_new",
        "names",
        "operation",
        "sparse",
    )

    def __init__(
        self,
        names: list[str],
        options: Options,
        presence: Presence,
        bucket: Bucket | None = None,
        priority: int = 0,
    ) -> None:
        self.names = names
        self.bucket = bucket
        self._options = options
        self._presence = presence
        self._prepared = options.prepare(joined(names), priority)
        #: Backward passes that each member still has to make.
        self._remaining = [options.passes] * len(names)
        self.is_here = [False] * len(names)
        #: The parameters whose gradients have come, until all are there.
        self._come: list[Tensor | None] = [None] * len(names)
        self.operation: _core.Operation | None = None
        #: What the ranks tell each other along with the gradients.
        self._told = Told(self._prepared.name, options.sparse_as_dense)
        #: The members that have come without a gradient: zeros take part in their place.
        self._lacking: set[int] = set()
        #: The members whose gradients are sparse, and do not travel with the others.
        self.sparse: dict[int, SparseReduction] = {}
        #: The members whose sparse gradients were made dense, and their numbers of sparse dimensions.
        self.densified: dict[int, int] = {}
        #: What is left to do when the operation is done: nothing, for contiguous uncompressed gradients.
        self._finishers: list[Callable[[], None]] = []
        self.reset()
        #: Whether the ranks have yet to ask each other of these gradients: until a step is over.
        self.is_new = True
        presence.add_group(None if bucket is None else bucket.layout)

    def reset(self) -> None:
        """Prepare for the next backward pass."""
        n_members = len(self.names)
        self._remaining[:] = [self._options.passes] * n_members
        self._waiting_for = n_members
        self.is_here[:] = [False] * n_members
        self._come[:] = [None] * n_members
        self.operation = None
        #: Whether the step has been made but for its end, which the next forward pass waits for.
        self.is_deferred = False
        self._lacking.clear()
        self.sparse.clear()
        self.densified.clear()
        self._finishers.clear()
        #: The members whose gradients are being combined, these gradients, and what versions of them.
        self._under_way: list[tuple[int, Tensor, int]] = []

    def restart_passes(self) -> None:
        """Restart the count of backward passes of every member that is not complete yet."""
        for member, is_here in enumerate(self.is_here):
            if not is_here:
                self._remaining[member] = self._options.passes

    @property
    def is_under_way(self) -> bool:
        """Whether all members are complete, and are being combined."""
        return self._waiting_for == 0

    @property
    def is_usual(self) -> bool:
        """Whether every member is complete, with a dense gradient."""
        return self._waiting_for == 0 and not (self.sparse or self.densified or self._lacking)

    @property
    def carries(self) -> bool:
        """Whether the reduction of the gradients also carries the ranks' reports on them."""
        return not self.is_new and self._presence.is_settled

    def kinds(self, parameters: Sequence[Tensor]) -> list[Kind]:
        """Return the kind of this rank's gradient of each member."""
        return [self._kind(member, parameter.grad) for member, parameter in enumerate(parameters)]

    def _kind(self, member: int, gradient: Tensor | None) -> Kind:
        if gradient is None or member in self._lacking:
            return Kind.NONE
        return Kind.SPARSE if gradient.is_sparse or member in self.densified else Kind.DENSE

    @property
    def has_complete(self) -> bool:
        """Whether a member is complete, and this rank or another may be combining it."""
        return self._waiting_for < len(self.names) and not self.is_deferred

    @property
    def has_started(self) -> bool:
        """Whether a backward pass has reached a member since the last step."""
        if self.is_deferred:
            return False
        passes = self._options.passes
        return self._waiting_for < len(self.names) or self._remaining.count(passes) < len(self.names)

    # --- a gradient comes ---

    def make_hook(self, member: int) -> Hook:
        """Return the hook to call whenever a gradient of `member` has been accumulated."""
        remaining, come, is_here = self._remaining, self._come, self.is_here

        def on_gradient(parameter: Tensor) -> None:
            left = remaining[member] = remaining[member] - 1
            if left == 0:  # what add() does, for less: a small model's step has little but these
                come[member] = parameter
                is_here[member] = True
                self._waiting_for -= 1
                if self._waiting_for == 0:
                    self._begin(member)
            elif self.is_deferred:
                raise AssertionError(
                    f"the gradient of {PREFIX}.{self.names[member]} was computed before the parameter was updated with "
                    "the one before: a forward pass has read it without calling its module. Call synchronize() before "
                    "that, or leave out overlap_forward"
                )
            elif left < 0:
                raise error_of_more_passes(self._options, self.names[member])

        return on_gradient

    def add(self, member: int, parameter: Tensor) -> None:
        """Add this step's gradient of `member`; start when all members are complete. REQUIRES: it has a gradient."""
        self._come[member] = parameter
        self._count_in(member)

    def _count_in(self, member: int) -> None:
        self.is_here[member] = True
        self._waiting_for -= 1
        if self._waiting_for == 0:
            self._begin(member)

    def _begin(self, last: int) -> None:
        try:
            self._start()
        except BaseException:  # it is seen again, when the optimizer waits
            self._finishers.clear()
            self.is_here[last] = False
            self._waiting_for = 1
            raise

    def _start(self) -> None:
        """Start the reduction of all members in one call: handling each gradient separately slows small models."""
        come = self._come
        members = [member for member, each in enumerate(come) if each is not None and each.grad is not None]
        gradients: list[Any] = [come[member].grad for member in members]  # type: ignore[union-attr]
        if any(map(_is_sparse, gradients)):
            members = [member for member in members if not self._is_apart(member, come[member])]
            gradients = [come[member].grad for member in members]  # type: ignore[union-attr]
        if self.bucket is not None:
            parameters = [cast(Tensor, come[member]) for member in members]
            gradients = [self.bucket.take(*three) for three in zip(members, gradients, parameters, strict=True)]
            for member, gradient in zip(members, gradients, strict=True):
                come[member].grad = gradient  # type: ignore[union-attr]
        is_last = self._presence.start_group()
        if self.carries:
            self._submit(self._to_send(*self._filled(members, gradients)), [self._tell()], is_last)
        elif gradients:
            self._submit(self._to_send(members, gradients), [], is_last)
        self._under_way = [(member, each, each._version) for member, each in zip(members, gradients, strict=True)]
        come[:] = [None] * len(come)

    def _filled(self, members: list[int], gradients: list[Tensor]) -> tuple[list[int], list[Tensor]]:
        """Return the tensors of all members to send: zeros for sparse ones. REQUIRES: all are complete."""
        n_members = len(self.names)
        if len(members) == n_members:
            return members, gradients
        given = dict(zip(members, gradients, strict=True))
        for member, parameter in enumerate(cast("list[Tensor]", self._come)):
            if member not in given:
                zeros = torch.zeros_like(parameter)
                given[member] = zeros if self.bucket is None else self.bucket.take(member, zeros, parameter)
        return list(range(n_members)), [given[member] for member in range(n_members)]

    def _tell(self) -> _core.TensorDescription:
        """Return this rank's report on the members. REQUIRES: all are complete."""
        self._presence.note_told()
        is_odd = self._presence.is_odd
        if self.is_usual:
            return self._told.tell_usual(len(self.names), is_odd)
        return self._told.tell(self.kinds(cast("list[Tensor]", self._come)), is_odd)

    def _is_apart(self, member: int, parameter: Tensor | None) -> bool:
        """Whether the gradient is combined separately, as sparse ones are; with sparse_as_dense it is made dense."""
        assert parameter is not None
        gradient = parameter.grad
        assert gradient is not None
        if member in self.sparse or not gradient.is_sparse:
            return member in self.sparse
        if self._options.sparse_as_dense:
            self.densified[member] = gradient.sparse_dim()
            parameter.grad = laid_out_like(parameter, gradient.to_dense())
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

    def _to_send(self, members: list[int], gradients: list[Tensor]) -> list[Tensor]:
        compression = self._options.compression
        if compression is not NoneCompressor:
            return [self._compressed(gradient, compression) for gradient in gradients]
        if self.bucket is not None and len(members) == len(self.names) and self.bucket.has_all(gradients):
            return list(self.bucket.flats)
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

    def _submit(self, to_send: list[Tensor], told: list[_core.TensorDescription], is_last: bool) -> None:
        connected: Any = world.engine or engine()  # the second raises
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, ALLREDUCE, id_of(self._options.process_set))
        tensors = [*all_for_engine(to_send), *told]
        target = tensors[0] if len(tensors) == 1 else tensors
        self.operation = connected.submit_prepared(self._prepared, target, self._options.weight, is_last)

    # --- the optimizer waits ---

    def complete(self, parameters: Sequence[Tensor], kinds: Sequence[Kind]) -> None:
        """Start with the present gradients. `kinds`: those of all ranks together for each member, if known."""
        for member, parameter in enumerate(parameters):
            if not self.is_here[member]:
                self._add_late(member, parameter, Kind.DENSE if self.carries else kinds[member])

    def _add_late(self, member: int, parameter: Tensor, kind: Kind) -> None:
        if not kind:
            self._count_in(member)
            return
        gradient = parameter.grad
        if gradient is not None:
            if not gradient.is_sparse and 0 in gradient.stride():  # expanded by its maker: nothing can be written to it
                parameter.grad = laid_out_like(parameter, gradient)
            self.add(member, parameter)
            return
        self._lacking.add(member)
        if kind == Kind.SPARSE and not self._options.sparse_as_dense:
            self._begin_sparse(member, None, parameter)
            self._count_in(member)
        else:
            parameter.grad = torch.zeros_like(parameter)
            if kind == Kind.SPARSE:
                self.densified[member] = 1  # as embeddings have
            self.add(member, parameter)

    def learn(self, parameters: Sequence[Tensor]) -> list[Kind]:
        """Return the kinds of all ranks together for each member; nothing, if they are as expected.

        REQUIRES: the operation is done, and the gradients carried the ranks' reports.

        Raises:
            MismatchError: as Told.check() does.
        """
        if self._told.is_usual:
            return []
        self._told.check(self.names)
        kinds = self._told.kinds()
        for member, (parameter, kind) in enumerate(zip(parameters, kinds, strict=True)):
            if not kind:
                parameter.grad = None
            elif kind == Kind.SPARSE and not self._options.sparse_as_dense and member not in self.sparse:
                self._begin_sparse(member, None, parameter)
            elif kind == Kind.SPARSE and member in self._lacking:
                self.densified[member] = 1
        return kinds

    def missing(self, kinds: Sequence[Kind]) -> list[str]:
        """Return the names of the members that other ranks have and this rank lacks."""
        return [self.names[member] for member in sorted(self._lacking) if kinds[member]]

    def check_unchanged(self, parameters: Sequence[Tensor]) -> None:
        """Make sure that the gradients are still those which were sent, not written to since.

        Raises:
            AssertionError: one was changed in place, or another tensor, or None, has been put in its place.
        """
        for member, gradient, version in self._under_way:
            if parameters[member].grad is not gradient or gradient._version != version:
                raise AssertionError(
                    f"the gradient of {PREFIX}.{self.names[member]} was changed or replaced between backward() and "
                    "step(), while it was being combined; call synchronize() before what changes gradients (clipping, "
                    "GradScaler.unscale_(), zero_grad()), and step within skip_synchronize()"
                )

    def finish(self, parameters: Sequence[Tensor], kinds: Sequence[Kind]) -> None:
        """Write the results to the gradients. REQUIRES: the operation is done. `kinds` is as for complete()."""
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
