"""Transpilers: what turns a whole program, which contains its optimizer already, into one that trains on all ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import paddle

from ciranda import _basics
from ciranda._frameworks.planner import Plan
from ciranda.errors import InvalidArgumentError
from ciranda.paddle import programs
from ciranda.paddle.rewriting import BUCKET_MB, Combining, Pair, Rewritable, combine, open_program


class _Transpiler:
    def __init__(self, nrings: int = 2, bucket_mb: float = BUCKET_MB, distributed: Collection[str] = ()) -> None:
        self.nrings = nrings
        self.bucket_mb = bucket_mb
        self.distributed = frozenset(distributed)
        #: What was put in, once a program has been transpiled.
        self.plan: Plan | None = None

    def transpile(
        self,
        startup_program: Any = None,
        main_program: Any = None,
        rank: int | None = None,
        endpoints: Sequence[str] | str | None = None,
        current_endpoint: str | None = None,
        wait_port: bool = True,
    ) -> None:
        """Rewrite both programs, in place. Joins the circle, unless this process is in one.

        Args:
            startup_program: ends with all ranks having rank 0's parameters. By default the default one.
            main_program: contains the optimizer. By default the default one.
            rank: this process's, if given, must be that of the circle.
            endpoints: as many as the circle has ranks, as a list or separated by commas; nobody listens there.
            current_endpoint: must be that of this rank in `endpoints`.
            wait_port: changes nothing: whoever joins waits for all.

        Raises:
            InvalidArgumentError: rank or endpoints do not fit the circle; the program has no optimizer, or has been
                transpiled already; an argument is out of range.
            MismatchError: the ranks have different programs.
        """
        _basics.init()
        _check_place(rank, endpoints, current_endpoint)
        main = main_program or paddle.static.default_main_program()
        startup = startup_program or paddle.static.default_startup_program()
        if any(programs.kind_of(op) == "allreduce_start" for op in programs.collectives_of(main)):
            raise InvalidArgumentError("the program has been transpiled already")
        program = open_program(main)
        self.plan = self._rewrite(program, program.updates())
        program.broadcast_startup(startup, self.distributed)

    def _rewrite(self, program: Rewritable, pairs: list[Pair]) -> Plan:
        raise NotImplementedError


class GradAllReduce(_Transpiler):
    """Averages the gradients of all ranks: each begins to travel once the backward pass has written it.

    Args:
        nrings: over how many lanes buckets are dealt out in turn, 1 to 16.
        bucket_mb: up to how many MiB of gradients travel as one operation; 0: each alone.
        distributed: names of parameters that are each rank's own: their gradients are not combined, and they are not
            broadcast. Also those with the attribute `is_distributed`.
    """

    def _rewrite(self, program: Rewritable, pairs: list[Pair]) -> Plan:
        return combine(program, pairs, Combining(), self.nrings, self.bucket_mb, self.distributed)


class LocalSGD(_Transpiler):
    """Lets each rank train by itself, and averages the parameters of all ranks every `k_steps` runs.

    The state of the optimizer stays each rank's own.

    Args:
        nrings: as of GradAllReduce.
        k_steps: after how many runs of the program parameters are averaged.
        bucket_mb: as of GradAllReduce.
        distributed: names of parameters that are each rank's own, and are left alone.
    """

    def __init__(
        self, nrings: int = 2, k_steps: int = 1, bucket_mb: float = BUCKET_MB, distributed: Collection[str] = ()
    ) -> None:
        super().__init__(nrings, bucket_mb, distributed)
        if isinstance(k_steps, bool) or not isinstance(k_steps, int) or k_steps < 1:
            raise InvalidArgumentError(f"k_steps must be a whole number from 1; got {k_steps!r}")
        self.k_steps = k_steps

    def _rewrite(self, program: Rewritable, pairs: list[Pair]) -> Plan:
        combining = Combining(prefix="LocalSGD", every=self.k_steps)
        return combine(program, program.updated(pairs), combining, self.nrings, self.bucket_mb, self.distributed)


def _check_place(rank: int | None, endpoints: Sequence[str] | str | None, current_endpoint: str | None) -> None:
    mine, size = _basics.rank(), _basics.size()
    if rank is not None and rank != mine:
        raise InvalidArgumentError(f"transpile(rank={rank}): this process has rank {mine} in the circle")
    everyones = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints or [])
    if everyones and len(everyones) != size:
        raise InvalidArgumentError(f"transpile(): {len(everyones)} endpoints, but the circle has {size} ranks")
    if current_endpoint and everyones and everyones[mine] != current_endpoint:
        raise InvalidArgumentError(
            f"transpile(): current_endpoint is {current_endpoint}, but that of rank {mine} is {everyones[mine]}"
        )
