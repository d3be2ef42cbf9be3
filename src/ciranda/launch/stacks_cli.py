"""`ciranda stacks`: where the ranks of a running job stand, once or by samples."""

from __future__ import annotations

import random
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from ciranda.launch import control
from ciranda.launch.errors import LaunchError
from ciranda.launch.screen_options import all_there, parse_ranks

_MOST_PAUSE_SECONDS = 0.2  # between two samples; it varies, so that samples do not meet the same part of each step
_NOTABLE = 0.1  # the least share of the looks that is told; of places where the others seldom are, less
_TIMES_AS_OFTEN = 4
_FEW_PLACES = 3  # are told even if they are less

Look = Sequence[Mapping[str, Any]]


def stacks(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="The beginning of its identifier.", show_default="the only one")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="A line for each rank.")] = False,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="LIST", help="Show these alone, as 0,3-5.", show_default="all")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, metavar="N", help="Look so often, and say where each rank stood how often.",
                     show_default="once"),
    ] = None,
) -> None:  # fmt: skip
    """Show where the ranks of a job stand: the stacks of all their threads. The job goes on."""
    if short and samples is not None:
        raise LaunchError("--short and --samples: give one of them", exit_code=2)
    wanted = parse_ranks(ranks, None) if ranks is not None else None

    def look() -> Look:
        found: Look = control.ask(job, "stacks")["stacks"]
        return found

    first = look()
    all_there(wanted, [stack["rank"] for stack in first])
    if samples is not None:
        print("\n".join(places(_looks(first, look, samples), wanted)))
        return
    for stack in first:
        if wanted is None or stack["rank"] in wanted:
            print(f"{_who(stack)}: {stack['where']}")
            if not short:
                print(textwrap.indent(stack["text"], "  "))


def _looks(first: Look, look: Callable[[], Look], n_looks: int) -> Iterator[Look]:
    """Look so often. A terminal sees how far that is: with many ranks, or on a busy host, a look takes a second."""
    yield first
    numbers = range(n_looks - 1)
    shown = (
        typer.progressbar(numbers, label="looking", file=sys.stderr) if sys.stderr.isatty() else nullcontext(numbers)
    )
    with shown as left:
        for _ in left:
            time.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
            yield look()


def places(looks: Iterable[Look], wanted: frozenset[int] | None = None) -> list[str]:
    """Lines for each rank that is wanted: where it stood, in how many of the looks, and the mean of the other ranks.

    The first place is the one where it stood more often than they did: that sets it apart.
    """
    found: dict[tuple[int, str], Counter[str]] = {}
    for stacks_of_all in looks:
        for stack in stacks_of_all:
            found.setdefault((stack["rank"], _who(stack)), Counter())[stack["where"]] += 1
    lines = []
    for (rank, who), counts in sorted(found.items()):
        if wanted is None or rank in wanted:
            others = [each for (other, _), each in found.items() if other != rank]
            lines += [f"{who}, {counts.total()} looks:", *_counted(counts, others)]
    return lines


def _counted(counts: Counter[str], others: Sequence[Counter[str]]) -> list[str]:
    def mean_of_others(where: str) -> float:
        return sum(each[where] for each in others) / max(1, len(others))

    least = min(_NOTABLE * counts.total(), counts.most_common(_FEW_PLACES)[-1][1])
    seen = [(n, mean_of_others(where), where) for where, n in counts.items()]
    told = [each for each in seen if each[0] >= least or (others and each[0] >= max(2, _TIMES_AS_OFTEN * each[1]))]
    told.sort(key=lambda each: (each[1] - each[0], each[2]))
    lines = [f"{n:6}{f' (others {mean:.0f})' if others else ''}  {where}" for n, mean, where in told]
    n_more = len(counts) - len(told)
    if n_more:
        lines.append(f"{counts.total() - sum(n for n, *_ in told):6}  in {n_more} more place{'s' * (n_more > 1)}")
    return lines


def _who(stack: Mapping[str, Any]) -> str:
    return f"rank {stack['rank']} ({stack['host']})"
