"""Transpilers: rewrite a whole program, which contains its optimizer already, to train on all ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import paddle

from ciranda import _basics
from ciranda._frameworks.interval import Interval, Progress
from ciranda._frameworks.planner import Plan
from ciranda._init import init
from ciranda.errors import InvalidArgumentError
from ciranda.numpy.ops import allreduce as allreduce_numpy
from ciranda.paddle import _plugin, differences, programs
from ciranda.paddle.comparing import compare_in
from ciranda.paddle.differences import FLAG
from ciranda.paddle.opening import open_program
from ciranda.paddle.passages import check_combined
from ciranda.paddle.rewriting import BUCKET_MB, Combining, Rewritable, check_names, combine, is_own


class _Transpiler:
    def __init__(self, nrings: int = 2, bucket_mb: float = BUCKET_MB, distributed: Collection[str] = ()) -> None:
        self.nrings = nrings
        self.bucket_mb = bucket_mb
        self.distributed = frozenset(distributed)
        self._combining = Combining()
        #: The plan of the program, once one has been transpiled.
        self.plan: Plan | None = None
        #: The names of the parameters that the program has snapshots of.
        self._snapshots: list[str] = []

    def transpile(
        self,
        startup_program: Any = None,
        main_program: Any = None,
        rank: int | None = None,
        endpoints: Sequence[str] | str | None = None,
        current_endpoint: str | None = None,
        wait_port: bool = True,
    ) -> None:
        """Rewrite both programs, in place. Joins the world, unless this process is in one.

        Args:
            startup_program: at its end all ranks receive rank 0's parameters. By default the default one.
            main_program: contains the optimizer. By default the default one.
            rank: this process's, if given, must be that of the world.
            endpoints: as many as the world has ranks, as a list or separated by commas; no process listens there.
            current_endpoint: must be that of this rank in `endpoints`.
            wait_port: without effect: joining always waits for all ranks.

        Raises:
            InvalidArgumentError: rank or endpoints do not match the world; the program has no optimizer, or has been
                transpiled already; an argument is out of range.
            MismatchError: the ranks have different programs.
        """
        init()
        _check_place(rank, endpoints, current_endpoint)
        main = main_program or paddle.static.default_main_program()
        startup = startup_program or paddle.static.default_startup_program()
        if any(programs.kind_of(op) == "allreduce_start" for op in programs.collectives_of(main)):
            raise InvalidArgumentError("the program has been transpiled already")
        program = open_program(main)
        self.plan = self._rewrite(program, main)
        program.broadcast_startup(startup, self.distributed)
        program.begin_snapshots(startup, self._snapshots)

    def _rewrite(self, program: Rewritable, main: Any) -> Plan:
        raise NotImplementedError


class GradAllReduce(_Transpiler):
    """Averages the gradients of all ranks: the reduction of each starts once the backward pass has written it.

    Args:
        nrings: the number of lanes over which buckets are distributed round-robin, 1 to 16.
        bucket_mb: the largest MiB of gradients in one operation; 0: each alone.
        distributed: names of local parameters: their gradients are not combined, and they are not broadcast. Also those
            with the attribute `is_distributed`.
    """

    def _rewrite(self, program: Rewritable, main: Any) -> Plan:
        pairs = program.updates()
        made = combine(program, pairs, self._combining, self.nrings, self.bucket_mb, self.distributed)
        compare_in(program, pairs, self._combining.prefix, self.distributed)
        check_combined(program.trace(), [pair.name for pair in pairs if is_own(pair, self.distributed)])
        return made


class LocalSGD(_Transpiler):
    """Averages the parameters of all ranks every `k_steps` runs; in between, each rank trains by itself.

    Args:
        nrings: as of GradAllReduce.
        k_steps: the number of runs of the program between averages.
        bucket_mb: as of GradAllReduce.
        distributed: names of local parameters, which are not averaged.
        average_state: average the optimizer's state of each element of a parameter, momenta for example, as well; by
            default it stays local.
        adaptive: begin with k_steps, and average more often as the loss falls, less often as the learning rate does.
            Call `report_loss()` after every run.
        max_k_steps: the largest number of runs between two averages, if `adaptive`.
        differences: send each parameter's difference to a snapshot of the last average, in place of the parameter: the
            same average, up to rounding, at the cost of one more copy of all parameters.

    Raises:
        InvalidArgumentError: k_steps or max_k_steps is out of range.
    """

    def __init__(
        self,
        nrings: int = 2,
        k_steps: int = 1,
        bucket_mb: float = BUCKET_MB,
        distributed: Collection[str] = (),
        average_state: bool = False,
        adaptive: bool = False,
        max_k_steps: int = 16,
        differences: bool = False,
    ) -> None:
        super().__init__(nrings, bucket_mb, distributed)
        self.average_state = average_state
        self.differences = differences
        self._combining = Combining(prefix="LocalSGD", every=k_steps, flag=FLAG if differences else "")
        self._interval = Interval(k_steps, max_k_steps if adaptive else None)
        self._losses: list[float] = []

    @property
    def k_steps(self) -> int:
        """The current number of runs between averages."""
        return self._interval.k

    def _rewrite(self, program: Rewritable, main: Any) -> Plan:
        updated = averaged = program.updated()
        states = [pair for pair in updated if not is_own(pair, self.distributed)] if self.average_state else []
        kept, rewritten = program.states(states), program
        if self.differences:
            check_names(self.distributed, updated)
            averaged, snapshots = differences.write(program, updated, self.distributed)
            self._snapshots = [each.name for each in snapshots]
            rewritten = open_program(main)
        made = combine(rewritten, [*averaged, *kept], self._combining, self.nrings, self.bucket_mb, self.distributed)
        compare_in(program, updated, self._combining.prefix, self.distributed)
        self._set_interval(made, 0)  # another program's buckets may have had the same names
        return made

    def _set_interval(self, made: Plan, every: int) -> None:
        for bucket in made.buckets:
            _plugin.set_interval(self._combining.name_of(bucket), every)

    def report_loss(self, loss: float, learning_rate: float = 1.0) -> None:
        """Report the loss of a run, if adaptive: after each run, on all ranks alike.

        After a run that has averaged, the ranks together choose the number of runs until the next average.

        Args:
            loss: of this rank.
            learning_rate: of the optimizer.
        """
        if self.plan is None or not self._interval.is_adaptive:
            raise InvalidArgumentError("report_loss() is for LocalSGD(adaptive=True) that has transpiled a program")
        self._losses.append(float(loss))
        if len(self._losses) < self._interval.k:
            return
        mine = np.array([np.mean(self._losses), learning_rate], np.float64)
        together = allreduce_numpy(mine, name=f"{self._combining.prefix}.progress")
        self._interval.adapt(Progress(float(together[0]), float(together[1])))
        self._losses.clear()
        self._set_interval(self.plan, self._interval.k)


def _check_place(rank: int | None, endpoints: Sequence[str] | str | None, current_endpoint: str | None) -> None:
    mine, size = _basics.rank(), _basics.size()
    if rank is not None and rank != mine:
        raise InvalidArgumentError(f"transpile(rank={rank}): this process has rank {mine} in the world")
    everyones = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints or [])
    if everyones and len(everyones) != size:
        raise InvalidArgumentError(f"transpile(): {len(everyones)} endpoints, but the world has {size} ranks")
    if current_endpoint and everyones and everyones[mine] != current_endpoint:
        raise InvalidArgumentError(
            f"transpile(): current_endpoint is {current_endpoint}, but that of rank {mine} is {everyones[mine]}"
        )
