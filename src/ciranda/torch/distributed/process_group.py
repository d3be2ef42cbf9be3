"""The process group of torch.distributed over a process set of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._init import shutdown as shutdown_world
from ciranda._ops import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCESCATTER,
    SCATTER,
    Average,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    LogicalAnd,
    LogicalOr,
    Max,
    Min,
    Product,
    Sum,
    submit_transfer,
    terms_of,
)
from ciranda.errors import InvalidArgumentError, NotInitializedError, NotSupportedError
from ciranda.torch.distributed import formed_sets, sparse
from ciranda.torch.distributed.any_source import AnySourceWork
from ciranda.torch.distributed.offers import Offers
from ciranda.torch.distributed.recording import recorded
from ciranda.torch.distributed.work import Work, is_called_by_backward
from ciranda.torch.tensors import check_kind, contiguous, for_engine, for_moving, like_input

Tensor = torch.Tensor

# Its own annotations leave much of it out.
dist: Any = torch.distributed

_OPS = {
    dist.ReduceOp.SUM: Sum,
    dist.ReduceOp.AVG: Average,
    dist.ReduceOp.MIN: Min,
    dist.ReduceOp.MAX: Max,
    dist.ReduceOp.PRODUCT: Product,
    dist.ReduceOp.BAND: BitwiseAnd,
    dist.ReduceOp.BOR: BitwiseOr,
    dist.ReduceOp.BXOR: BitwiseXor,
}
_SUM = dist.ReduceOp.SUM
_LOGICAL = {BitwiseAnd: LogicalAnd, BitwiseOr: LogicalOr}


def _op_of(opts: Any, tensor: Tensor) -> int:
    reduce_op = opts.reduceOp
    # The usual case first: after a backward pass, with cold caches, each look at one of torch's objects takes 10 us.
    op = Sum if reduce_op == _SUM else _OPS.get(getattr(reduce_op, "op", reduce_op))
    if op is None:
        raise NotSupportedError(f"the reduce operation {reduce_op} is not supported by the backend ciranda")
    return _LOGICAL.get(op, op) if tensor.dtype == torch.bool else op


def _nothing(_operation: _core.Operation) -> None:
    pass


def _is_plain(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether the engine can write values of `dtype` into the tensor."""
    return tensor.dtype == dtype and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def _check_types(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise InvalidArgumentError if a result would need a conversion, or one of them has no memory of its own."""
    for output, tensor in zip(outputs, inputs, strict=True):
        check_kind(output)
        check_kind(tensor)
        if output.dtype != tensor.dtype:
            raise InvalidArgumentError(f"the input is of type {tensor.dtype}, but the output of {output.dtype}")


def _write_back(work: Sequence[Tensor], tensors: Sequence[Tensor]) -> Callable[[_core.Operation], None]:
    """Return the function that copies the results in `work` to the original tensors, if they differ."""

    def finish(_operation: _core.Operation) -> None:
        for each, tensor in zip(work, tensors, strict=True):
            if each.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(each)

    return finish


def _delivery(outputs: list[Tensor], inputs: list[Tensor]) -> Callable[[_core.Operation], None]:
    """Return the function that copies the results of an operation on `inputs` into `outputs`, one each."""

    def finish(done: _core.Operation) -> None:
        for whole, output, tensor in zip(done.outputs(), outputs, inputs, strict=True):
            output.detach().copy_(like_input(whole, tensor).reshape(output.shape))

    return finish


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc, unused-ignore]
    """The process group of torch.distributed over a process set of the engine."""

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        process_set: int,
        timeout: timedelta | None = None,
        store: object | None = None,
    ) -> None:
        super().__init__(rank, len(ranks))
        self._ranks = list(ranks)  # in the world, by rank of the group
        self._set = process_set
        self._name = ""
        self._description = ""
        # The engine's results come in the order of the world's ranks.
        self._order = sorted(range(len(ranks)), key=lambda index: self._ranks[index])
        self._is_ordered = self._order == list(range(len(ranks)))
        self._place = sorted(range(len(ranks)), key=lambda index: self._order[index])  # the way back
        self._timeout = timeout
        self._offers = None if store is None else Offers(store, rank, len(ranks))
        self._leave = formed_sets.leaver(self, process_set)
        self._era = formed_sets.era()

    # --- who it is

    def getBackendName(self) -> str:
        return "ciranda"

    def name(self) -> str:
        return "ciranda"

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    @property
    def ranks(self) -> list[int]:
        """Its members' ranks in the world, by their ranks in the group."""
        return self._ranks

    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:
        return self._name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def group_desc(self) -> str:
        return self._description

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    def __repr__(self) -> str:
        return f"ciranda.torch.distributed.ProcessGroup(ranks={self._ranks})"

    # --- its end

    def shutdown(self) -> None:
        """Leave the group: what this rank has called is still carried out, later calls fail. Never blocks.

        The memory of the group is freed on all of its ranks, as nothing can be done in it without this one. That of the
        default group is the world's, which stays as it is.
        """
        self._leave()

    def abort(self) -> None:
        """Leave the group at once. Pending calls of the default group fail, on all ranks: this leaves the world.

        Those of other groups are carried out if the other ranks call them.
        """
        self._leave()
        if self._set == 0:
            shutdown_world()

    def _require_world(self) -> None:
        """Raise NotInitializedError if the group's world has ended, even if this process is in another by now."""
        if self._era is not formed_sets.era():
            raise NotInitializedError(
                f"this process group of {self.size()} ranks has ended with the world in which it was formed: call "
                "torch.distributed.destroy_process_group() if it is still there, then init_process_group() again, and "
                "wrap models anew"
            )

    # --- how it submits

    def _submit(
        self,
        collective: int,
        inputs: object,
        outputs: object,
        op: int = Sum,
        root: int = -1,
        splits: list[list[int]] | None = None,
        opts: Any = None,
        is_early: bool = False,
    ) -> _core.Operation:
        """Submit a call. `is_early`: who calls waits soon."""
        self._require_world()
        waits_at_once = not getattr(opts, "asyncOp", True)
        how = _core.EARLY if is_early else _core.AWAITED if waits_at_once else 0
        terms = terms_of(collective, op, root)
        return (world.engine or engine()).submit(terms, inputs, outputs, None, self._set, splits, how=how)

    def _work(
        self, operation: _core.Operation, result: list[Tensor], finish: Callable[[_core.Operation], None]
    ) -> Work:
        return Work(operation, result, finish, self._timeout, self._offers)

    def _in_place(
        self,
        collective: int,
        tensors: list[Tensor],
        op: int = Sum,
        root: int = -1,
        opts: Any = None,
        is_early: bool = False,
    ) -> Work:
        work = [contiguous(tensor.detach()) for tensor in tensors]
        handed_over = for_moving if collective == BROADCAST else for_engine
        targets = [handed_over(each) for each in work]
        operation = self._submit(collective, targets, targets, op, root, opts=opts, is_early=is_early)
        return self._work(operation, tensors, _write_back(work, tensors))

    def _submit_rows(
        self,
        collective: int,
        inputs: list[Tensor],
        outputs: list[Tensor] | None = None,
        root: int = -1,
        opts: Any = None,
    ) -> _core.Operation:
        """Submit each tensor as one row, so that the results are tables with a row a rank: in `outputs`, if given."""
        rows = [contiguous(tensor.detach()).reshape(1, -1) for tensor in inputs]
        tables = None if outputs is None else [for_moving(output.detach().view(self.size(), -1)) for output in outputs]
        return self._submit(collective, [for_moving(row) for row in rows], tables, root=root, opts=opts)

    def _can_receive(self, outputs: list[Tensor], inputs: list[Tensor]) -> bool:
        """Whether the engine can write its results into `outputs`."""
        return self._is_ordered and all(
            _is_plain(output, tensor.dtype) and output.numel() == tensor.numel() * self.size()
            for output, tensor in zip(outputs, inputs, strict=True)
        )

    def _check_lists(self, lists: Sequence[Sequence[Tensor]]) -> None:
        """Raise InvalidArgumentError unless each has a tensor a rank, with memory of its own."""
        for each in lists:
            for tensor in each:
                check_kind(tensor)
            if len(each) != self.size():
                raise InvalidArgumentError(f"a list of {len(each)} tensors was given in a group of {self.size()} ranks")

    # --- the collectives

    @recorded("all_reduce")
    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        op = Sum if opts is None else _op_of(opts, listed[0])
        if listed[0].layout is not torch.strided:
            return self._allreduce_sparse(listed, op)
        # A hook of DDP may call more for a bucket, and is not seen to wait soon. Between DDP and this is the decorator.
        return self._in_place(ALLREDUCE, listed, op, opts=opts, is_early=is_called_by_backward(1))

    def _allreduce_sparse(self, tensors: list[Tensor], op: int) -> Work:
        (tensor,) = tensors
        parts = [for_engine(part) for part in sparse.parts_of(tensor, op)]
        return self._work(
            self._submit(ALLGATHER, parts, None), tensors, sparse.delivery(tensor, op, sorted(self._ranks))
        )

    @property
    def is_whole_world(self) -> bool:
        """Whether it is of all ranks, in the world's own process set."""
        return self._set == 0

    @recorded("all_reduce")
    def average(self, tensor: Tensor) -> Work:
        """Average a tensor over the ranks, in place, as all_reduce() with ReduceOp.AVG does. Its thread waits soon."""
        return self._in_place(ALLREDUCE, [tensor], Average, is_early=True)

    allreduce_coalesced = allreduce

    @recorded("broadcast")
    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        root = 0 if opts is None else opts.rootRank
        return self._in_place(BROADCAST, listed, Sum, self._ranks[root], opts)

    @recorded("reduce")
    def reduce(self, tensors: list[Tensor], opts: Any) -> Work:
        return self._in_place(REDUCE, list(tensors), _op_of(opts, tensors[0]), self._ranks[opts.rootRank], opts)

    @recorded("barrier")
    def barrier(self, opts: Any = None) -> Work:
        return self._work(self._submit(BARRIER, None, None, opts=opts), [], _nothing)

    def _gather_rows(
        self, collective: int, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any, root: int = -1
    ) -> Work:
        """Gather each input as one row a rank, into the lists of `outputs`, which are empty where nothing comes."""
        self._check_lists(outputs)
        operation = self._submit_rows(collective, inputs, root=root, opts=opts)

        def finish(done: _core.Operation) -> None:
            if outputs:
                for whole, parts, tensor in zip(done.outputs(), outputs, inputs, strict=True):
                    table = like_input(whole, tensor)
                    for position, index in enumerate(self._order):
                        parts[index].detach().copy_(table[position].reshape(parts[index].shape))

        return self._work(operation, [part for parts in outputs for part in parts], finish)

    @recorded("all_gather")
    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._gather_rows(ALLGATHER, outputs, inputs, opts)

    @recorded("all_gather")
    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        """Gather several tensors; unlike those of allgather(), the outputs are a list a rank, not a list an input."""
        by_input = [list(parts) for parts in zip(*outputs, strict=True)]
        return self._gather_rows(ALLGATHER, by_input, inputs, opts)

    @recorded("all_gather")
    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._gather_tables(outputs, inputs, opts)

    @recorded("all_gather")
    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self._gather_tables([output], [tensor], opts)

    def _gather_tables(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        _check_types(outputs, inputs)
        tables = outputs if self._can_receive(outputs, inputs) else None
        operation = self._submit_rows(ALLGATHER, inputs, tables, opts=opts)

        def finish(done: _core.Operation) -> None:
            for whole, output, tensor in zip(done.outputs(), outputs, inputs, strict=True):
                table = like_input(whole, tensor)
                if table.data_ptr() == output.data_ptr():
                    continue  # it came to where it is wanted
                ordered = table if self._is_ordered else torch.stack([table[place] for place in self._place])
                output.detach().copy_(ordered.reshape(output.shape))

        return self._work(operation, outputs, finish)

    @recorded("reduce_scatter")
    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        self._check_lists(inputs)
        stacked = [torch.stack([parts[index].detach().reshape(-1) for index in self._order]) for parts in inputs]
        return self._reduce_scatter(outputs, stacked, opts)

    @recorded("reduce_scatter")
    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._reduce_scatter_tables(outputs, inputs, opts)

    @recorded("reduce_scatter")
    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self._reduce_scatter_tables([output], [tensor], opts)

    def _reduce_scatter_tables(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        _check_types(outputs, inputs)
        tables = [tensor.detach().reshape(self.size(), -1) for tensor in inputs]
        return self._reduce_scatter(outputs, [self._by_world_rank(table) for table in tables], opts)

    def _by_world_rank(self, table: Tensor) -> Tensor:
        return table if self._is_ordered else table[self._order]

    def _reduce_scatter(self, outputs: list[Tensor], tables: list[Tensor], opts: Any) -> Work:
        _check_types(outputs, tables)
        op = Sum if opts is None else _op_of(opts, tables[0])
        work = [for_engine(contiguous(table)) for table in tables]
        if all(
            _is_plain(output, table.dtype) and output.numel() * self.size() == table.numel()
            for output, table in zip(outputs, tables, strict=True)
        ):
            rows = [for_engine(output.detach().view(1, -1)) for output in outputs]
            return self._work(self._submit(REDUCESCATTER, work, rows, op, opts=opts), outputs, _nothing)
        return self._work(self._submit(REDUCESCATTER, work, None, op, opts=opts), outputs, _delivery(outputs, tables))

    @recorded("all_to_all")
    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> Work:
        check_kind(output)
        check_kind(tensor)
        size = self.size()
        sent = list(input_splits) or [tensor.shape[0] // size] * size
        received = list(output_splits) or [output.shape[0] // size] * size
        inputs = list(torch.split(tensor.detach(), sent))
        return self._exchange(list(torch.split(output.detach(), received)), inputs, [output], opts)

    @recorded("all_to_all")
    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._exchange(outputs, inputs, outputs, opts)

    def _exchange(self, outputs: list[Tensor], inputs: list[Tensor], result: list[Tensor], opts: Any) -> Work:
        self._check_lists((outputs, inputs))
        flat = torch.cat([contiguous(inputs[index].detach()).reshape(-1) for index in self._order])
        splits = [inputs[index].numel() for index in self._order]
        operation = self._submit(ALLTOALL, [for_moving(flat)], None, splits=[splits], opts=opts)

        def finish(done: _core.Operation) -> None:
            outcome, counts_sent = done.outputs()
            whole, sent = like_input(outcome, flat), torch.as_tensor(counts_sent, device="cpu")
            counts = [outputs[index].numel() for index in self._order]
            for index, n_sent, n_wanted in zip(self._order, sent.tolist(), counts, strict=True):
                if n_sent != n_wanted:
                    raise InvalidArgumentError(
                        f"alltoall: rank {index} of the group has sent {n_sent} elements to rank {self.rank()}, whose "
                        f"output for them has {n_wanted}"
                    )
            for index, part in zip(self._order, torch.split(whole, counts), strict=True):
                outputs[index].detach().copy_(part.reshape(outputs[index].shape))

        return self._work(operation, result, finish)

    @recorded("gather")
    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        here = outputs if self.rank() == opts.rootRank else []
        return self._gather_rows(GATHER, here, inputs, opts, self._ranks[opts.rootRank])

    @recorded("scatter")
    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        if self.rank() == opts.rootRank:
            self._check_lists(inputs)
            tables = [
                torch.stack([contiguous(parts[index].detach()).reshape(-1) for index in self._order])
                for parts in inputs
            ]
        else:
            tables = [output.new_empty((0, output.numel())) for output in outputs]
        splits = [[1] * self.size()] * len(tables) if self.rank() == opts.rootRank else None
        rows = [for_moving(table) for table in tables]
        operation = self._submit(SCATTER, rows, None, root=self._ranks[opts.rootRank], splits=splits, opts=opts)
        return self._work(operation, outputs, _delivery(outputs, tables))

    # --- between two ranks

    def _transfer(self, tensors: list[Tensor], peer: int, sender: int, tag: int) -> Work:
        self._require_world()
        (tensor,) = tensors
        work = contiguous(tensor.detach())
        name = f"tag {tag}" if self._set == 0 else f"tag {tag} of group {self._set}"
        operation = submit_transfer(for_moving(work), self._ranks[peer], sender, name, is_numbered=True)
        return self._work(operation, tensors, _write_back([work], tensors))

    @recorded("send")
    def send(self, tensors: list[Tensor], destination: int, tag: int = 0) -> Work:
        work = self._transfer(tensors, destination, self._ranks[self.rank()], tag)
        if self._offers is not None:
            self._offers.sent(destination, tag, work)
        return work

    @recorded("recv")
    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Work:
        if self._offers is not None:
            self._offers.received(source, tag)
        return self._transfer(tensors, source, self._ranks[source], tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> AnySourceWork:
        if self._offers is None:
            raise NotSupportedError("recv() without a source needs a group with a store: name the source")
        return AnySourceWork(self._offers, tag, lambda source: self.recv(tensors, source, tag), self._timeout)

    # Names of torch before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
