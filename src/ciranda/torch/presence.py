"""What the ranks tell each other as they come to a step: which gradients they have, and which step it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._frameworks.options import PREFIX, Options
from ciranda._ops import ALLREDUCE, Average, Max, Sum
from ciranda.errors import MismatchError
from ciranda.process_sets import id_of
from ciranda.torch.gradients import GradientGroup, Kind
from ciranda.torch.tensors import for_engine

Tensor = torch.Tensor
Groups = Sequence[GradientGroup]
#: The parameters of each group.
Members = Sequence[Sequence[Tensor]]


class Presence:
    """Which gradients are there, and which are sparse, on this rank and on all together.

    It is an allreduce of the kind that the gradients have, so that it travels with the last of them.
    """

    def __init__(self, name: str, options: Options, priority: int = 0) -> None:
        self._name = f"{PREFIX}.{name}.presence"
        self._options = options
        self._priority = priority
        self._op = options.op if options.op in (Average, Sum) else Max
        #: A column for each gradient, and one for the step. Row 0: whether it is dense, or the step's number even;
        #: row 1: whether it is sparse, or the number odd. Here where all are dense, for an even step and an odd one.
        self._usual: list[Tensor] = []
        #: The same of all ranks together: what is above zero, somebody has.
        self._table = torch.empty(2, 0)
        self._is_odd = False
        #: Tables that were found to be in order, of an even step and an odd one. Most that come are equal to them.
        self._in_order = [self._table, self._table]

    def tell(self, groups: Groups, members: Members, nth_step: int) -> _core.Operation:
        """Start to tell the others. When the operation is done, `check()` and `kinds()` know of all ranks together."""
        mine = self._look(groups, members, nth_step)
        return (world.engine or engine()).submit(*self._call(mine), True, **self._how())

    def exchange(self, groups: Groups, members: Members, nth_step: int) -> None:
        """Tell the others, and wait for what they tell: `check()` and `kinds()` know of all ranks together."""
        mine = self._look(groups, members, nth_step)
        connected = world.engine or engine()
        if connected.size == 1:
            self._table = mine
            return
        connected.run(*self._call(mine), **self._how())

    def _look(self, groups: Groups, members: Members, nth_step: int) -> Tensor:
        """Return what this rank has, and at which step it is."""
        self._is_odd = bool(nth_step % 2)
        if not all(group.is_usual for group in groups):
            return _table_of(groups, members, nth_step)
        if not self._usual or self._usual[0].shape[1] != sum(map(len, members)) + 1:
            self._usual = [_table_of(groups, members, nth) for nth in range(2)]
        return self._usual[nth_step % 2]

    def _call(self, mine: Tensor) -> tuple[int, object, object, str, int, int, float, float]:
        self._table = torch.empty_like(mine)
        tensors = for_engine(mine), for_engine(self._table)
        return ALLREDUCE, *tensors, self._name, self._op, -1, *self._options.factors(self._op)

    def _how(self) -> dict[str, Any]:
        return {
            "process_set": id_of(self._options.process_set),
            "divides_by_all": self._options.divides_by_all(self._op),
            "priority": self._priority,
        }

    def check(self, groups: Groups) -> None:
        """Make sure that all ranks are at the same step, and combine the same. REQUIRES: the operation is done.

        Raises:
            MismatchError: on all ranks, which could else wait for each other, or combine what does not belong together.
        """
        if torch.equal(self._table, self._in_order[self._is_odd]):
            return
        both = self._table.prod(dim=0)
        if not both.any():
            self._in_order[self._is_odd] = self._table
            return
        if both[-1]:
            raise MismatchError(
                f"{self._name}: since they began together, ranks have made different numbers of steps with this "
                "optimizer. All must call step() alike: whether to skip one is to be decided by what all ranks know"
            )
        if not self._options.sparse_as_dense:
            names = [name for group in groups for name in group.names]
            mixed = [name for name, is_mixed in zip(names, both.tolist(), strict=False) if is_mixed]
            raise MismatchError(
                f"the gradients of {', '.join(mixed)} are sparse on some ranks and dense on others; give "
                "DistributedOptimizer sparse_as_dense=True"
            )

    def kinds(self) -> list[Kind]:
        """Return the kinds of all parameters, group after group. REQUIRES: the operation is done."""
        dense, sparse = (self._table[:, :-1] > 0).tolist()
        return [Kind(is_dense + 2 * is_sparse) for is_dense, is_sparse in zip(dense, sparse, strict=True)]


def _table_of(groups: Groups, members: Members, nth_step: int) -> Tensor:
    kinds = [kind for group, parameters in zip(groups, members, strict=True) for kind in group.kinds(parameters)]
    rows = [[float(kind == of_row) for kind in (*kinds, Kind.NONE)] for of_row in (Kind.DENSE, Kind.SPARSE)]
    rows[nth_step % 2][-1] = 1.0
    return torch.tensor(rows)
