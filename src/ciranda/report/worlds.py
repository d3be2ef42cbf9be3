"""The worlds of an elastic job, from the counters of its places, which begin anew with each world. Pure.

A place has one process after another, and a rank's number in each world. Who was waited for is counted by that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ciranda.launch.rates import Counters, is_same_world
from ciranda.report.job import LeftJob

_TOGETHER_SECONDS = 5.0  # within which all ranks of a world begin, as the launcher sees it


@dataclass
class World:
    """The ranks of a job between two changes.

    Attributes:
        size: how many ranks it has.
        begin, end: in seconds since the launcher's start; the end is the last look at its counters.
        last: by rank in this world, the last counters of its place.
    """

    size: int
    begin: float
    end: float
    last: dict[int, Mapping[str, Any]] = field(default_factory=dict)


def worlds_of(job: LeftJob) -> list[World]:
    """The worlds of which counters were read, in the order of time."""
    found: list[World] = []
    world_of: dict[int, World] = {}  # by place, the last one
    before: dict[int, Mapping[str, Any]] = {}
    for at, looked in job.looks:
        for place, read in looked.items():
            counters = read
            if "pid" not in counters or "world_rank" not in counters:
                continue
            if place not in world_of or not is_same_world(before[place], counters):
                world_of[place] = _world_for(found, counters, at)
            elif not counters["runs"]:  # the page of a process that has ended grows older
                counters = {**counters, "seconds": before[place]["seconds"]}
            world = world_of[place]
            world.last[counters["world_rank"]] = before[place] = counters
            world.end = max(world.end, world.begin + counters["seconds"])
    return found


def _world_for(found: list[World], counters: Mapping[str, Any], at: float) -> World:
    """The last world, if its ranks began then and this is none of them; else another."""
    begin = at - counters["seconds"]
    if found:
        last = found[-1]
        is_together = last.size == counters["size"] and abs(last.begin - begin) <= _TOGETHER_SECONDS
        is_new = counters["world_rank"] not in last.last
        if is_together and is_new and all(each["rank"] != counters["rank"] for each in last.last.values()):
            return last
    found.append(World(counters["size"], begin, begin))
    return found[-1]


def by_world_rank(before: Counters, after: Counters) -> tuple[Counters, Counters]:
    """The counters, by rank in their world, of the places that have run in the same world at both looks."""
    same = [
        (now["world_rank"], before[place], now)
        for place, now in after.items()
        if now["runs"] and "world_rank" in now and place in before and is_same_world(before[place], now)
    ]
    return {rank: each for rank, each, _ in same}, {rank: each for rank, _, each in same}
