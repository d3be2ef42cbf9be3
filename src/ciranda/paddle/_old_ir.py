"""Rewrites programs of Paddle's old IR: blocks of operators that read and write variables by name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.base import core

from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.planner import Bucket, Tensor
from ciranda.errors import InvalidArgumentError
from ciranda.paddle import programs
from ciranda.paddle._plugin import Build, load
from ciranda.paddle.passages import Key, Kind, Operator
from ciranda.paddle.rewriting import FINITE, LAZY, SNAPSHOT, Combining, Pair, lazy_error, require_optimizer

_ROLE = core.op_proto_and_checker_maker.kOpRoleAttrName()
_ROLE_VAR = core.op_proto_and_checker_maker.kOpRoleVarAttrName()
_SPARSE = core.VarDesc.VarType.SELECTED_ROWS
#: Operators for sparse gradients.
_OF_SPARSE = ("merge_selected_rows", "get_tensor_from_selected_rows")
_BACKWARD = int(core.op_proto_and_checker_maker.OpRole.Backward)
_OPTIMIZE = int(core.op_proto_and_checker_maker.OpRole.Optimize)
#: What an operator writes whose result nobody wants.
_NOTHING = core.empty_var_name()
#: Operators on lists: each of `Out` is computed from that of `X` at its position.
_ON_LISTS = (FINITE, "update_loss_scaling")


def _role(op: Any) -> int:
    return int(op.attr(_ROLE)) if op.has_attr(_ROLE) else 0


def _arguments(op: Any) -> tuple[list[str], list[str]]:
    """Return the names of what an operator reads and writes: of one on lists, those of the lists."""
    if op.type in _ON_LISTS:
        return op.input("X"), op.output("Out")
    return op.input_arg_names, op.output_arg_names


class OldProgram:
    """`Rewritable` of the old IR."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._block = program.global_block()
        self._ops = list(self._block.ops)
        #: The positions of the inserted operators in the original program.
        self._added: list[int] = []

    # --- reading

    def updates(self) -> list[Pair]:
        """See `Rewritable`."""
        raw: dict[str, str] = {}
        for op in self._ops:
            if _role(op) & _BACKWARD and op.has_attr(_ROLE_VAR):
                named = op.attr(_ROLE_VAR)
                raw.update(zip(named[::2], named[1::2], strict=False))
        pairs: dict[str, Pair] = {}
        for name in [name for op in self._steps() for name in op.input("Param")]:  # one operator may step many
            gradient = raw.get(name, name + core.grad_var_suffix())
            if not self._block.has_var(gradient):
                raise InvalidArgumentError(f"the program has no gradient of {name}, which its optimizer updates")
            pairs[name] = Pair(name, self._block.var(name), self._block.var(gradient))
        if not pairs and any(self._is_step(op) for block in self._program.blocks for op in block.ops):
            raise InvalidArgumentError(
                "the program's optimizer is within control flow, as where gradients are accumulated: have it write "
                "the collectives itself, by GradientMergeOptimizer(DistributedOptimizer(optimizer), ...)"
            )
        return require_optimizer(pairs)

    def _steps(self) -> list[Any]:
        """Return the operators that step a parameter."""
        return [op for op in self._ops if self._is_step(op)]

    @staticmethod
    def _is_step(op: Any) -> bool:
        return bool(_role(op) & _OPTIMIZE and {"Param", "Grad"} <= set(op.input_names) and op.input("Param"))

    def updated(self) -> list[Pair]:
        """See `Rewritable`."""
        return [pair._replace(gradient=pair.parameter) for pair in self.updates()]

    def states(self, pairs: list[Pair]) -> list[Pair]:
        """See `Rewritable`."""
        shapes = {pair.name: tuple(pair.parameter.shape) for pair in pairs}
        found = []
        for op in self._steps():
            names = op.input("Param")
            for made in (op.output(each) for each in op.output_names if len(op.output(each)) == len(names)):
                kept = [(name, self._block.var(each)) for name, each in zip(names, made, strict=True) if each != name]
                found += [Pair(each.name, each, each) for name, each in kept if tuple(each.shape) == shapes.get(name)]
        return found

    def operators(self) -> list[str]:
        """See `Rewritable`."""
        kinds = [programs.kind_of(op) for op in self._ops]
        return [programs.PREFIX + kind if kind else op.type for kind, op in zip(kinds, self._ops, strict=True)]

    def key(self, pair: Pair) -> Key:
        """See `Rewritable`."""
        return str(pair.gradient.name)

    def is_sparse(self, pair: Pair) -> bool:
        """See `Rewritable`."""
        return bool(pair.gradient.type == _SPARSE)

    def trace(self) -> Iterator[Operator]:
        """See `Rewritable`."""
        derived: set[str] = set()
        for op in self._block.ops:
            reads, writes = ([each for each in names if each != _NOTHING] for names in _arguments(op))
            kind = self._kind(op)
            if _role(op) & _BACKWARD:
                kind = Kind.SEED if derived.isdisjoint(reads) else kind
                derived.update(writes)
            updates = list(zip(op.input("Param"), op.input("Grad"), strict=True)) if kind is Kind.STEP else []
            yield Operator(kind, reads, writes, updates)

    def _kind(self, op: Any) -> Kind:
        kind = programs.kind_of(op)
        if kind == "allreduce_start":
            return Kind.COMBINE
        if kind == "sync_comm" or op.type in _ON_LISTS:
            return Kind.EACH
        return Kind.STEP if self._is_step(op) else Kind.OTHER

    def tensor(self, pair: Pair, is_own: bool) -> Tensor:
        """See `Rewritable`."""
        name = pair.gradient.name
        if not is_own and self.is_sparse(pair):
            self._make_dense(pair)
        writers = [
            index
            for index, op in enumerate(self._ops)
            if name in op.output_arg_names and (pair.gradient is pair.parameter or not _role(op) & _OPTIMIZE)
        ]
        if not writers:
            raise InvalidArgumentError(
                f"the gradient {name} is not written in the program's first block: control flow around it is not "
                "supported"
            )
        # The backward pass may go on from a gradient, as where a parameter is made of another.
        passed_on = [
            index for index, op in enumerate(self._ops) if _role(op) & _BACKWARD and name in op.input_arg_names
        ]
        ready = max([*writers, *passed_on]) + 1
        readers = [index for index in range(ready, len(self._ops)) if name in self._ops[index].input_arg_names]
        return Tensor(pair.name, self._n_bytes(pair.parameter), ready, tuple(readers), None, is_own)

    def _make_dense(self, pair: Pair) -> None:
        """Make the embeddings of a parameter write its dense gradient, not only the rows of the batch."""
        if any(op.has_attr(LAZY) and op.attr(LAZY) for op in self._steps() if pair.name in op.input("Param")):
            raise lazy_error(pair.name)
        parts = {each for each in self._block.vars if each.startswith(pair.name + core.grad_var_suffix())}
        for op in self._ops:
            if op.has_attr("is_sparse") and pair.name in op.input_arg_names:
                op._set_attr("is_sparse", False)
            elif op.type in _OF_SPARSE and not parts.isdisjoint(op.input_arg_names):
                raise InvalidArgumentError(
                    f"the gradient of {pair.name} is sparse, and {op.type} reads it, as where gradients are clipped or "
                    "regularized: use the embedding with sparse=False"
                )
        for each in parts:
            self._block.var(each).desc.set_type(pair.parameter.type)

    def readers(self, pair: Pair) -> list[str]:
        """See `Rewritable`."""
        return [op.type for op in self._ops if pair.gradient.name in op.input_arg_names]

    def _n_bytes(self, variable: Any) -> int:
        return int(math.prod(abs(each) for each in variable.shape)) * int(core.size_of_dtype(variable.dtype))

    # --- writing

    def _insert(self, position: int, **what: Any) -> None:
        self._block._insert_op(position + sum(each <= position for each in self._added), **what)
        self._added.append(position)

    def _role_at(self, position: int) -> int:
        """Return the role of an operator inserted there: that of the operator before it."""
        return _role(self._ops[min(position, len(self._ops)) - 1]) if self._ops else _BACKWARD

    def _cast(self, position: int, source: Any, target: Any, role: int) -> None:
        attributes = {"in_dtype": source.dtype, "out_dtype": target.dtype, _ROLE: role}
        self._insert(
            position, type="cast", inputs={"X": [source.name]}, outputs={"Out": [target.name]}, attrs=attributes
        )

    def _sent(self, pair: Pair, wire: Any) -> Any:
        """Return the variable to send: the gradient itself, one of a smaller type, or a copy of a parameter."""
        if wire is None or pair.gradient.dtype not in (paddle.float32, paddle.float64):
            # Without a library an operator's result is in new memory; a parameter must keep its own.
            if pair.gradient is not pair.parameter or load() is not Build.PY_FUNC:
                return pair.gradient
            wire = pair.gradient.dtype
        name = f"{pair.gradient.name}.sent"
        if self._block.has_var(name):
            return self._block.var(name)
        return self._block.create_var(name=name, shape=pair.gradient.shape, dtype=wire, persistable=False)

    def look(self, pairs: Sequence[Pair], name: str) -> None:
        """See `Rewritable`."""
        nothing = self._block.create_var(name=name, shape=[1], dtype="int64", persistable=False)
        # Not a part of the forward pass: a program that is cloned for tests has none.
        attributes = {"name": name, "ring_id": 0, _ROLE: _BACKWARD}
        self._insert(0, **programs.description("look", [pair.name for pair in pairs], [nothing.name], attributes))

    def start(self, position: int, pairs: Sequence[Pair], combining: Combining, bucket: Bucket) -> None:
        """See `Rewritable`."""
        role = self._role_at(position) & (_BACKWARD | _OPTIMIZE) or _BACKWARD
        sent = [self._sent(pair, combining.wire) for pair in pairs]
        for pair, variable in zip(pairs, sent, strict=True):
            if variable is not pair.gradient:
                self._cast(position, pair.gradient, variable, role)
        attributes = {**combining.start(bucket), _ROLE: role}
        names = [each.name for each in sent]
        self._insert(position, **programs.description("allreduce_start", names, names, attributes))

    def sync(self, position: int, pairs: Sequence[Pair], names: Sequence[str], ring: int, wire: Any) -> None:
        """See `Rewritable`."""
        role = self._role_at(position) & (_BACKWARD | _OPTIMIZE) or _BACKWARD
        sent = [self._sent(pair, wire) for pair in pairs]
        # Marks the gradients as made here, as Paddle's own operators do: gradient accumulation reads the mark.
        of_parameters = [pair for pair in pairs if pair.gradient is not pair.parameter]
        made = [name for pair in of_parameters for name in (pair.name, pair.gradient.name)]
        attributes = {"names": list(names), "ring_id": ring, _ROLE: role, **({_ROLE_VAR: made} if made else {})}
        variables = [each.name for each in sent]
        self._insert(position, **programs.description("sync_comm", variables, variables, attributes))
        for pair, variable in zip(pairs, sent, strict=True):
            if variable is not pair.gradient:
                self._cast(position, variable, pair.gradient, role)

    def agree_on_finite(self, name: str) -> None:
        """See `Rewritable`."""
        for index, op in enumerate(self._ops):
            if op.type != FINITE:
                continue
            (found,) = op.output("FoundInfinite")
            number = self._block.create_var(name=f"{found}.number", shape=[1], dtype="int32", persistable=False)
            attributes = {"name": f"{name}.{index}", "ring_id": 0, _ROLE: _role(op)}
            self._cast(index + 1, self._block.var(found), number, _role(op))
            names = [number.name]
            self._insert(index + 1, **programs.description("allreduce_max", names, names, attributes))
            self._cast(index + 1, number, self._block.var(found), _role(op))

    def current(self, pair: Pair) -> Any:
        """See `Rewritable`."""
        return pair.gradient

    def broadcast_startup(self, startup: Any, distributed: Collection[str]) -> None:
        """See `Rewritable`."""
        block = startup.global_block()
        for parameter in self._program.global_block().all_parameters():
            name = parameter.name
            if name in distributed or is_distributed(parameter) or not block.has_var(name):
                continue
            attributes = {"name": f"startup.{name}", "ring_id": 0, "root": 0}
            received = block.create_var(
                name=f"{name}.broadcast", shape=parameter.shape, dtype=parameter.dtype, persistable=False
            )
            block.append_op(**programs.description("broadcast", [name], [received.name], attributes))
            # Into the memory that is there: parameters may share it, as the weights of an RNN do.
            block.append_op(type="assign", inputs={"X": [received.name]}, outputs={"Out": [name]})

    # --- snapshots

    @contextmanager
    def behind_optimizer(self) -> Iterator[None]:
        """See `Rewritable`."""
        with paddle.static.program_guard(self._program), self._program._optimized_guard([]):
            yield

    def snapshot(self, pair: Pair) -> Any:
        """See `Rewritable`."""
        return _kept(self._block, pair.parameter)

    def begin_snapshots(self, startup: Any, names: Sequence[str]) -> None:
        """See `Rewritable`."""
        block = startup.global_block()
        for name in names:
            if block.has_var(name):
                to = _kept(block, self._block.var(name))
                block.append_op(type="assign", inputs={"X": [name]}, outputs={"Out": [to.name]})


def _kept(block: Any, parameter: Any) -> Any:
    name = SNAPSHOT.format(parameter.name)
    return block.create_var(name=name, shape=parameter.shape, dtype=parameter.dtype, persistable=True)
