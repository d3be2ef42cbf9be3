"""The literal form of LocalSGD, which sends each parameter's difference to a snapshot of the last average.

Written into the program after its optimizer, for each parameter that is averaged:

    difference = snapshot - parameter
    (here all ranks' differences are averaged, in the runs that communicate)
    average = snapshot - difference
    parameter, snapshot = average, average, in these runs only

The start of the differences decides whether a run communicates. If it does, a flag that is sent with them returns as
zero, by which the program knows, whatever the current interval.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import paddle

from ciranda.paddle.rewriting import Pair, Rewritable, is_own

#: The name of the flag, which stays 1 in runs that do not communicate.
FLAG = "has_stayed"


class Snapshot(NamedTuple):
    """A parameter, and the tensor of its last average."""

    name: str
    parameter: Any
    value: Any


def write(
    program: Rewritable, updated: Sequence[Pair], distributed: Collection[str]
) -> tuple[list[Pair], list[Snapshot]]:
    """Write all but the averaging at the end of the program; return the pairs to average, and the snapshots.

    Args:
        program: must be opened again afterwards.
        updated: parameters, with their updated values.
        distributed: names of local parameters, which are not averaged.
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
