"""How a job went over time, as a report draws it: by recorded step, or between two looks at the counters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ciranda.report import units
from ciranda.report.svg import Columns

_MOST_COLUMNS = 120


@dataclass(frozen=True)
class Series:
    """By column, of steps or of a time.

    Attributes:
        at: where it is on the axis.
        seconds: a step; 0 where none ended.
        waited_for: by rank, how long the others waited for it in a step; of times, which share of the time.
    """

    is_of_steps: bool
    x_unit: Callable[[float], str]
    columns: Columns
    at: list[float]
    seconds: list[float]
    waited_for: Mapping[int, Sequence[float]]


def series_of(facts: Mapping[str, Any]) -> Series | None:
    """None where nothing is known of time."""
    recorded = facts["recorded"]
    if recorded and recorded["steps"] > 1:
        return _of_steps(recorded)
    return _of_intervals(facts["intervals"]) if facts["intervals"] else None


def _of_steps(recorded: Mapping[str, Any]) -> Series:
    first = recorded["first_step"]
    ranges = [(first + each["from"], first + each["until"] - 1) for each in recorded["bins"]]
    titles = [f"step {begin}" if begin == end else f"steps {begin} to {end}" for begin, end in ranges]
    ranks = [rank["rank"] for rank in recorded["ranks"]]
    return Series(
        True,
        lambda x: f"{x:.0f}",
        Columns("step", titles, [str(begin) for begin, _ in ranges]),
        [first + each["from"] for each in recorded["bins"]],
        [each["step_seconds"] for each in recorded["bins"]],
        dict(zip(ranks, recorded["waited_for_seconds"], strict=True)),
    )


def _of_intervals(intervals: Sequence[Mapping[str, Any]]) -> Series:
    """Of as many neighbouring intervals together that there is room for all."""
    size = -(-len(intervals) // _MOST_COLUMNS)
    groups = [intervals[begin : begin + size] for begin in range(0, len(intervals), size)]
    at, seconds = [], []
    waited_for: dict[int, list[float]] = {each["rank"]: [] for each in intervals[0]["ranks"]}
    for group in groups:
        since, until = group[0]["from"], group[-1]["until"]
        length = sum(each["until"] - each["from"] for each in group)
        at.append((since + until) / 2)
        n_steps = sum(min(rank["steps"] for rank in each["ranks"]) for each in group)
        seconds.append(length / n_steps if n_steps > 0 else 0.0)
        for rank, values in waited_for.items():
            values.append(sum(_waited_for(each, rank) for each in group) / length)
    ticks = [units.seconds(group[0]["from"]) for group in groups]
    columns = Columns("time", [f"after {tick}" for tick in ticks], ticks)
    return Series(False, units.seconds, columns, at, seconds, waited_for)


def _waited_for(interval: Mapping[str, Any], rank: int) -> float:
    """In seconds."""
    share = next((each["waited_for"] for each in interval["ranks"] if each["rank"] == rank), 0.0)
    return float(share * (interval["until"] - interval["from"]))
