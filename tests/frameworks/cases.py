"""The cases of the conformance suite: every collective x dtype x op x rows x process set x factors, in each form.

A case says what each rank brings and gets; it knows no framework. Ranks are positions in the process set.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from framework import DTYPES, Array, Framework, numpy_dtype
from reference import cut, reduced, rows_of

from ciranda import _core

OPS = {row["name"]: row for row in _core.reduce_op_table()}
REDUCTIONS = ("allreduce", "reducescatter", "reduce", "scan")
MOVES = ("allgather", "broadcast", "alltoall", "gather", "scatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
#: Whose results are as large as what is brought, so that they can be in place.
IN_PLACE = ("allreduce", "broadcast")
FACTORS = (0.5, 3.0)


@dataclass(frozen=True)
class Case:
    """One collective, on the rows of arrays that are three wide.

    Attributes:
        rows: "even", "uneven" (between ranks, or not to be shared out evenly) or "empty".
        among: "all" ranks, or "some".
        form: "single", "grouped" (of three) or "in place".
    """

    number: int
    collective: str
    dtype: str
    op: str
    rows: str
    among: str
    factors: tuple[float, float]
    form: str

    @property
    def name(self) -> str:
        return f"case.{self.number}"

    @property
    def n_tensors(self) -> int:
        return 3 if self.form == "grouped" else 1

    def root(self, n: int) -> int:
        return self.number % n

    def splits(self, n: int) -> list[list[int]] | None:
        """Return how many rows go from each rank to each; None: equal parts."""
        if self.collective not in ("alltoall", "scatter") or self.rows != "uneven":
            return None
        return [[(sender + 2 * receiver + self.number) % 4 for receiver in range(n)] for sender in range(n)]

    def shape(self, n: int, rank: int) -> tuple[int, ...]:
        """Return the shape of what the rank brings."""
        splits = self.splits(n)
        if self.collective == "scatter" and rank != self.root(n):
            return (0, 3)
        if splits is not None:
            return (sum(splits[rank]), 3)
        if self.rows == "empty":
            return (0, 3)
        if self.collective in ("allgather", "gather"):
            return (2 if self.rows == "even" else 2 * rank, 3)
        if self.rows == "uneven":
            return () if self.collective in ("allreduce", "reduce", "scan", "broadcast") else (2 * n + 1, 3)
        return (2 * n, 3)

    def inputs(self, n: int, index: int) -> list[Array]:
        """Return what each rank brings as its tensor `index`: numbers whose sums and products any dtype can hold."""
        seed = zlib.crc32(f"{self.collective} {self.dtype} {self.op} {self.rows} {index}".encode())
        shapes = [self.shape(n, rank) for rank in range(n)]
        return [_values(np.random.default_rng([seed, rank]), shapes[rank], self) for rank in range(n)]

    def results(self, n: int, index: int) -> list[Array | None]:
        """Return what each rank gets for tensor `index`; None: nothing."""
        inputs = self.inputs(n, index)
        root, splits = self.root(n), self.splits(n)
        if self.collective == "scan":
            return [reduced(inputs[: rank + 1], self.op, *self.factors) for rank in range(n)]
        if self.collective in REDUCTIONS:
            total = reduced(inputs, self.op, *self.factors)
            if self.collective == "reducescatter":
                return list(cut(total, rows_of(len(total), n)))
            return [total if self.collective == "allreduce" or rank == root else None for rank in range(n)]
        if self.collective == "broadcast":
            return [inputs[root]] * n
        if self.collective in ("allgather", "gather"):
            whole = np.concatenate(inputs)
            return [whole if self.collective == "allgather" or rank == root else None for rank in range(n)]
        counts = splits or [rows_of(len(each), n) for each in inputs]
        if self.collective == "scatter":
            return list(cut(inputs[root], counts[root]))
        parts = [cut(each, counts[sender]) for sender, each in enumerate(inputs)]
        return [np.concatenate([parts[sender][rank] for sender in range(n)]) for rank in range(n)]

    def options(self, ranks: Sequence[int], rank: int) -> dict[str, Any]:
        """Return the keywords of the function, for the rank of that position among `ranks`."""
        n = len(ranks)
        options: dict[str, Any] = {"name": self.name}
        if self.collective in REDUCTIONS:
            options["op"] = OPS[self.op]["number"]
            if self.factors != (1.0, 1.0):
                options["prescale_factor"], options["postscale_factor"] = self.factors
        if self.collective in ROOTED:
            options["root_rank"] = ranks[self.root(n)]
        splits = self.splits(n)
        if splits is not None and (self.collective == "alltoall" or rank == self.root(n)):
            options["splits"] = [splits[rank]] * self.n_tensors if self.form == "grouped" else splits[rank]
        return options


def _values(rng: np.random.Generator, shape: tuple[int, ...], case: Case) -> Array:
    dtype = numpy_dtype(case.dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if case.op == "product":
        low, high, step = 1, 4, 1.0
    elif dtype.kind in "iu":
        low, high, step = (0 if dtype.kind == "u" else -9), 10, 1.0
    else:
        low, high, step = -16, 17, 0.25
    values = np.asarray(rng.integers(low, high, shape) * step)
    if dtype.kind == "c":
        values = values + 1j * rng.integers(low, high, shape) * step
    return np.asarray(values).astype(dtype)


def cases(framework: Framework) -> Iterator[Case]:
    """Yield every case of a framework, numbered alike for all of them. Forms take turns."""
    numbers = itertools.count()
    everywhere = (("even", "uneven", "empty"), ("all", "some"))
    for collective, op, rows, among in itertools.product(REDUCTIONS, OPS, *everywhere):
        if op == "adasum" and collective != "allreduce":
            continue
        for dtype in OPS[op]["takes"]:
            for factors in ((1.0, 1.0), FACTORS) if dtype in OPS[op]["scales"] else ((1.0, 1.0),):
                number = next(numbers)
                if dtype in framework.dtypes and framework.has(collective):
                    form = _form(framework, collective, number)
                    yield Case(number, collective, dtype, op, rows, among, factors, form)
    for collective, rows, among, dtype in itertools.product(MOVES, *everywhere, DTYPES):
        number = next(numbers)
        if dtype in framework.dtypes and framework.has(collective):
            form = _form(framework, collective, number)
            yield Case(number, collective, dtype, "", rows, among, (1.0, 1.0), form)


def _form(framework: Framework, collective: str, number: int) -> str:
    functions = {"single": collective, "grouped": f"grouped_{collective}"}
    if collective in IN_PLACE:
        functions["in place"] = f"{collective}_"
    forms = list(functions)
    chosen = forms[number % len(forms)]
    return chosen if framework.has(functions[chosen]) else "single"
