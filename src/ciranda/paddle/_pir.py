"""Rewrites programs of PIR: operators that use each other's results."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import paddle
from paddle import pir

from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.planner import Bucket, Tensor
from ciranda.errors import InvalidArgumentError
from ciranda.paddle import programs
from ciranda.paddle._pir_flow import Flow, source_of, steps, trace
from ciranda.paddle.passages import INSTEAD, Key, Operator
from ciranda.paddle.rewriting import FINITE, SNAPSHOT, Combining, Pair, require_optimizer

_SIZES = {
    **dict.fromkeys(("FLOAT64", "INT64", "COMPLEX64"), 8),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16"), 2),
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), 1),
    "COMPLEX128": 16,
}


def name_of(parameter: Any) -> str:
    """Return the name of a parameter."""
    return str(parameter.name)


class PirProgram:
    """`Rewritable` of PIR."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._ops = list(program.global_block().ops)
        self._index = {op.id(): index for index, op in enumerate(self._ops)}
        self._steps = list(steps(self._ops))
        #: The current value of a gradient, by its key: the result of its last start, sync or cast.
        self._current: dict[Key, Any] = {}
        #: The last sync's first result.
        self._token: Any = None

    # --- reading

    def updates(self) -> list[Pair]:
        """See `Rewritable`."""
        flow = Flow(self._ops)
        pairs: dict[str, Pair] = {}
        for op, parameter, gradient in self._steps:
            name = name_of(parameter)
            raw = flow.raw(gradient, parameter.shape)
            if raw is None:
                raise InvalidArgumentError(
                    f"the gradient of {name} was not found behind {op.name()}: as far as the program shows, what this "
                    "reads is not the derivative of a loss, clipped, regularized or scaled. Write the program with "
                    f"{INSTEAD}"
                )
            pairs[name] = Pair(name, parameter, raw)
        return require_optimizer(pairs)

    def updated(self) -> list[Pair]:
        """See `Rewritable`."""
        steps_of = {name_of(parameter): (parameter, op) for op, parameter, _ in self._steps}
        return require_optimizer({name: Pair(name, each, op.result(0)) for name, (each, op) in steps_of.items()})

    def states(self, pairs: list[Pair]) -> list[Pair]:
        """See `Rewritable`."""
        shapes = {pair.name: list(pair.parameter.shape) for pair in pairs}
        found = []
        for op, parameter, _ in self._steps:
            name = name_of(parameter)
            for index, value in enumerate(op.results()):
                # States that this optimizer does not use are results without a type.
                if index > 0 and value.initialized() and list(value.shape) == shapes.get(name):
                    found.append(Pair(f"{name}.{index}", parameter, value))
        return found

    def operators(self) -> list[str]:
        """See `Rewritable`."""
        kinds = [programs.kind_of(op) for op in self._ops]
        ours = programs.PIR_PREFIX + programs.PREFIX
        return [ours + kind if kind else op.name() for kind, op in zip(kinds, self._ops, strict=True)]

    def key(self, pair: Pair) -> Key:
        """See `Rewritable`."""
        return str(pair.gradient.id)

    def is_sparse(self, pair: Pair) -> bool:
        """See `Rewritable`."""
        return bool(pair.gradient.is_selected_row_type())

    def trace(self) -> Iterator[Operator]:
        """See `Rewritable`."""
        yield from trace(list(self._program.global_block().ops))

    def tensor(self, pair: Pair, is_own: bool) -> Tensor:
        """See `Rewritable`."""
        value = pair.gradient
        if not is_own and self.is_sparse(pair):
            raise InvalidArgumentError(f"the gradient of {pair.name} is sparse: use the embedding with sparse=False")
        op = source_of(value)
        if op is None or op.id() not in self._index:
            raise InvalidArgumentError(
                f"the gradient of {pair.name} is not written in the program's first block: control flow around it is "
                "not supported"
            )
        ready = self._index[op.id()] + 1
        users = {user.id() for user in value.all_used_ops_in_same_block()}
        readers = sorted(self._index[user] for user in users if user in self._index)
        return Tensor(pair.name, _n_bytes(pair.parameter), ready, tuple(readers), None, is_own)

    def readers(self, pair: Pair) -> list[str]:
        """See `Rewritable`."""
        users = list(pair.gradient.all_used_ops_in_same_block())
        of_lists = [op for op in users if op.name() == "builtin.combine"]
        users += [user for op in of_lists for user in op.result(0).all_used_ops_in_same_block()]
        return [op.name().removeprefix("pd_op.").rstrip("_") for op in users]

    # --- writing

    def _at(self, position: int) -> Any:
        """Return a context that inserts operators at that position of the original program."""
        return _Insertion(self._program, self._ops, position)

    def _add(self, kind: str, values: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
        return list(programs.call(kind, list(values), attributes))

    def look(self, pairs: Sequence[Pair], name: str) -> None:
        """See `Rewritable`."""
        parameters = [pair.parameter for pair in pairs]
        with self._at(1 + max(self._index[source_of(each).id()] for each in parameters)):
            programs.call("look", parameters, {"name": name, "ring_id": 0}, [[1]])

    def start(self, position: int, pairs: Sequence[Pair], combining: Combining, bucket: Bucket) -> None:
        """See `Rewritable`."""
        with self._at(position):
            sent = [_cast(pair.gradient, combining.wire) for pair in pairs]
            started = self._add("allreduce_start", sent, combining.start(bucket))
        self._current.update({self.key(pair): value for pair, value in zip(pairs, started, strict=True)})

    def sync(self, position: int, pairs: Sequence[Pair], names: Sequence[str], ring: int, wire: Any) -> None:
        """See `Rewritable`."""
        with self._at(position):
            tokens = [] if self._token is None else [self._token]
            values = [*tokens, *(self._current[self.key(pair)] for pair in pairs)]
            synced = self._add("sync_comm", values, {"names": list(names), "ring_id": ring})
            self._token, results = synced[0], synced[len(tokens) :]
            results = [
                value if wire is None or value.dtype == pair.gradient.dtype else paddle.cast(value, pair.gradient.dtype)
                for pair, value in zip(pairs, results, strict=True)
            ]
        for pair, value in zip(pairs, results, strict=True):
            self._current[self.key(pair)] = value
            self._replace(pair.gradient, value, position)

    def _replace(self, value: Any, by: Any, position: int) -> None:
        """Make the original operators from that position on read another value."""
        readers = {op.id() for op in self._ops[position:]}
        for user in value.all_used_ops_in_same_block():
            if user.id() in readers:
                for operand in user.operands():
                    if operand.source().is_same(value):
                        operand.set_source(by)

    def agree_on_finite(self, name: str) -> None:
        """See `Rewritable`."""
        for index, op in enumerate(self._ops):
            if op.name().rstrip("_") == f"pd_op.{FINITE}":
                found = op.results()[-1]
                with self._at(index + 1):
                    number = paddle.cast(found, "int32")
                    number = programs.call("allreduce_max", number, {"name": f"{name}.{index}", "ring_id": 0})
                    agreed = paddle.cast(number, "bool")
                self._replace(found, agreed, index + 1)

    def current(self, pair: Pair) -> Any:
        """See `Rewritable`."""
        return self._current.get(self.key(pair), pair.gradient)

    def broadcast_startup(self, startup: Any, distributed: Collection[str]) -> None:
        """See `Rewritable`."""
        marked = {name_of(each) for each in self._program.global_block().all_parameters() if is_distributed(each)}
        known = {name_of(each) for each in self._program.global_block().all_parameters()}
        for index, op in enumerate(ops := list(startup.global_block().ops)):
            if op.name() != "builtin.set_parameter":
                continue
            name = op.attrs()["parameter_name"]
            if name not in known or name in marked or name in distributed:
                continue
            with _Insertion(startup, ops, index):
                value = programs.call(
                    "broadcast", op.operand_source(0), {"name": f"startup.{name}", "ring_id": 0, "root": 0}
                )
                value.persistable = True
            op.operand(0).set_source(value)

    # --- snapshots

    def behind_optimizer(self) -> Any:
        """See `Rewritable`."""
        return paddle.static.program_guard(self._program)

    def snapshot(self, pair: Pair) -> Any:
        """See `Rewritable`."""
        with _Insertion(self._program, self._ops, 0):
            name, parameter = SNAPSHOT.format(pair.name), pair.parameter
            value = paddle._pir_ops.data(name, parameter.shape, parameter.dtype, paddle.base.core.Place())
        value.persistable = True
        return value

    def begin_snapshots(self, startup: Any, names: Sequence[str]) -> None:
        """See `Rewritable`."""
        ops = list(startup.global_block().ops)
        with paddle.static.program_guard(startup):
            for op in ops:
                if op.name() == "builtin.set_parameter" and op.attrs()["parameter_name"] in names:
                    copy = paddle.assign(op.operand_source(0))
                    copy.persistable = True
                    paddle._pir_ops.set_persistable_value(copy, SNAPSHOT.format(op.attrs()["parameter_name"]))


class _Insertion:
    """A context that inserts operators right before an operator, or at the end."""

    def __init__(self, program: Any, ops: Sequence[Any], position: int) -> None:
        self._guard = paddle.static.program_guard(program)
        self._before = ops[position] if position < len(ops) else None

    def __enter__(self) -> None:
        self._guard.__enter__()
        if self._before is not None:
            pir.set_insertion_point(self._before)

    def __exit__(self, *error: Any) -> None:
        pir.reset_insertion_point_to_end()
        self._guard.__exit__(*error)


def _cast(value: Any, wire: Any) -> Any:
    return value if wire is None or value.dtype not in (paddle.float32, paddle.float64) else paddle.cast(value, wire)


def _n_bytes(value: Any) -> int:
    size = _SIZES.get(str(value.dtype).rsplit(".", 1)[-1].upper(), 4)
    return int(math.prod(abs(each) for each in value.shape)) * size
