"""`ciranda stacks`: where the ranks of a running job stand, once or by samples."""

from __future__ import annotations

import random
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from ciranda.launch import control
from ciranda.launch.screen_options import parse_ranks

_MOST_PAUSE_SECONDS = 0.2  # between two samples; it varies, so that samples do not meet the same part of each step
_MOST_PLACES = 3  # are told of each rank, the most frequent


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
    wanted = parse_ranks(ranks, None) if ranks is not None else None

    def look() -> list[Mapping[str, Any]]:
        found = control.ask(job, "stacks")["stacks"]
        return [stack for stack in found if wanted is None or stack["rank"] in wanted]

    if samples is not None:
        print("\n".join(places(_looks(look, samples))))
        return
    for stack in look():
        print(f"{_who(stack)}: {stack['where']}")
        if not short:
            print(textwrap.indent(stack["text"], "  "))


def _looks(look: Callable[[], Sequence[Mapping[str, Any]]], n_looks: int) -> Iterable[Sequence[Mapping[str, Any]]]:
    for number in range(n_looks):
        if number > 0:
            time.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
        yield look()


def places(looks: Iterable[Sequence[Mapping[str, Any]]]) -> list[str]:
    """A line for each rank: where it stood, the most frequent place first, with how many looks found it there."""
    found: dict[tuple[int, str], Counter[str]] = {}
    for stacks_of_all in looks:
        for stack in stacks_of_all:
            found.setdefault((stack["rank"], _who(stack)), Counter())[stack["where"]] += 1
    return [f"{who}: {_counted(counts)}" for (_, who), counts in sorted(found.items())]


def _counted(counts: Counter[str]) -> str:
    told = [f"{n} of {counts.total()} {where}" for where, n in counts.most_common(_MOST_PLACES)]
    n_more = len(counts) - len(told)
    return "; ".join(told + ([f"{n_more} more place{'s' * (n_more > 1)}"] if n_more > 0 else []))


def _who(stack: Mapping[str, Any]) -> str:
    return f"rank {stack['rank']} ({stack['host']})"
