"""The literal form of LocalSGD: what travels is each parameter's difference to a snapshot of the last average.

Written into the program behind its optimizer, for each parameter that is averaged:

    difference = snapshot - parameter
    (here all ranks' differences are averaged, in the runs that communicate)
    average = snapshot - difference
    parameter, snapshot = average, average, in these runs only

Whether a run communicates is decided when the differences start to travel. A flag that travels with them, and comes
back as zero, tells the program: what it does then fits, however often runs communicate by now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import paddle

from ciranda.paddle.rewriting import Pair, Rewritable, is_own

#: The name of what stays 1 in runs that do not communicate.
FLAG = "has_stayed"


class Snapshot(NamedTuple):
    """A parameter, and what stands for the last average of it."""

    name: str
    parameter: Any
    value: Any


def write(
    program: Rewritable, updated: Sequence[Pair], distributed: Collection[str]
) -> tuple[list[Pair], list[Snapshot]]:
    """Put all but the averaging at the end of the program; return what is to be averaged, and the snapshots.

    Args:
        program: has to be opened anew afterwards.
        updated: parameters, and what the optimizer has made of them.
        distributed: those that are each rank's own are left alone.
    """
    own = [pair for pair in updated if is_own(pair, distributed)]
    snapshots = [
        Snapshot(pair.name, pair.gradient, program.snapshot(pair)) for pair in updated if not is_own(pair, distributed)
    ]
    with program.behind_optimizer():
        stayed = paddle.full([1], 1.0, "float32")
        found = [paddle.subtract(each.value, each.parameter) for each in snapshots]
        has_communicated = paddle.equal(stayed, paddle.full([1], 0.0, "float32"))
        for each, difference in zip(snapshots, found, strict=True):
            average = paddle.subtract(each.value, difference)
            for kept in (each.parameter, each.value):
                paddle.assign(paddle.where(has_communicated, average, kept), kept)
    pairs = [Pair(each.name, difference, difference) for each, difference in zip(snapshots, found, strict=True)]
    return [*own, Pair(FLAG, stayed, stayed), *pairs], snapshots
