"""Where the ranks stood when some last waited long for others, and for which call, from their ``stall.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ciranda.report import units
from ciranda.report.job import LeftJob

_MOST_CALLS = 50
_TYPES = (("time", str), ("rank", int), ("host", str), ("where", str), ("is_waited_for", bool), ("waited_for", list),
          ("calls", list), ("counters", dict))  # fmt: skip

Facts = Mapping[str, Any]


def standstill_of(job: LeftJob) -> dict[str, Any] | None:
    """The facts; None if no rank waited for long. Files that are torn, or not ours, are left out."""
    stalls = [stall for rank in sorted(job.stalls) if (stall := _read(job, rank)) is not None]
    if not stalls:
        return None
    calls = sorted((call for stall in stalls for call in stall["calls"]), key=lambda call: -call["waited_seconds"])
    # Calls have the numbers of their world, which differ from those of places in an elastic job.
    where = {stall["counters"].get("world_rank", stall["rank"]): stall["where"] for stall in stalls}
    return {
        "time": max(stall["time"] for stall in stalls),
        "waited_for": sorted({rank for stall in stalls for rank in stall["waited_for"]}),
        "n_calls": len(calls),
        "calls": [_call(call, where) for call in calls[:_MOST_CALLS]],
        "ranks": [
            {name: stall[name] for name in ("rank", "host", "where", "is_waited_for")}
            | {"waiting": stall["counters"].get("waiting", 0), "steps": stall["counters"].get("steps", 0)}
            | {"calls": stall["counters"].get("calls", 0), "calls_in_flight": stall.get("calls_in_flight", [])}
            for stall in stalls
        ],
    }


def _read(job: LeftJob, rank: int) -> Facts | None:
    try:
        stall = json.loads(job.stalls[rank].read_bytes())
    except (OSError, ValueError):
        return None
    return stall if isinstance(stall, dict) and all(isinstance(stall.get(name), of) for name, of in _TYPES) else None


def _call(call: Facts, where: Mapping[int, str]) -> dict[str, Any]:
    """A call that waits, with where the ranks stood that had not made it."""
    return {**call, "missing": [{**each, "where": where.get(each["rank"], "")} for each in call["missing"]]}


def first_difference(standstill: Facts) -> str:
    """The first call that differs, who made it, and who did not; empty if no call waits for a rank."""
    if not standstill["calls"]:
        return ""
    call = standstill["calls"][0]
    made = units.ranks(call["submitted_by"], call["n_more_submitted"])
    has = "have" if len(call["submitted_by"]) + call["n_more_submitted"] > 1 else "has"
    sentences = [f"The first call that differs is '{call['name']}': {made} {has} made it"]
    waiting = {each["name"] for each in standstill["calls"]}
    for (last, where), ranks in _alike(call["missing"]).items():
        has, they = ("have", "they") if len(ranks) > 1 else ("has", "it")
        if last is None:
            did = "made no call before"
        elif last == call["name"]:
            did = "made the one of that name before it last"
        else:
            did = f"made '{last}' instead" if last in waiting else f"made '{last}' last"
        stood = f", and stood at {where}" if where else ""
        sentences.append(f"{units.ranks(ranks)} {has} not: {they} {did}{stood}")
    if call["n_more_missing"]:
        sentences.append(f"{call['n_more_missing']} more have not")
    return "; ".join(sentences) + "."


def _alike(missing: Iterable[Facts]) -> dict[tuple[str | None, str], list[int]]:
    """Ranks that made the same call last, and stood at the same place."""
    found: dict[tuple[str | None, str], list[int]] = {}
    for each in missing:
        found.setdefault((each["last"], each["where"]), []).append(each["rank"])
    return found
