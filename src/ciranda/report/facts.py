"""The facts of a job for its report, in plain values for JSON: what `ciranda report --json` writes.

The counters tell of the whole job; the records of some steps, where they were kept, tell of single steps and of sizes.
docs/guide/observe.md has the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ciranda.launch.rates import NO_RANKS, Counters, Row, rows
from ciranda.report.advice import advice_of
from ciranda.report.job import LeftJob
from ciranda.report.recorded import steps_of

FORMAT = 1

Facts = dict[str, Any]


def facts_of(job: LeftJob) -> Facts:
    """All that the report of a job says; LaunchError if its records are of another version."""
    last = _last(job)
    facts: Facts = {
        "format": FORMAT,
        "job": _about(job),
        "end": _end(job),
        "ranks": _ranks(job, last),
        "intervals": _intervals(job),
        "collectives": _collectives(last),
        "events": [dict(event) for event in job.events],
        "recorded": steps_of(job),
    }
    facts["advice"] = advice_of(facts)
    return facts


def _last(job: LeftJob) -> Counters:
    """The last counters of each rank; in the end those of a host that was lost are missing."""
    found: dict[int, Mapping[str, Any]] = {}
    for _, counters in job.looks:
        for rank, each in counters.items():
            if "pid" in each or rank not in found:
                found[rank] = each
    return found


def _about(job: LeftJob) -> Facts:
    about = job.about
    seconds = max([job.end.get("at", 0.0), *(at for at, _ in job.looks), *(event["at"] for event in job.events)])
    return {
        "id": about["job"],
        "began": about["began"],
        "seconds": seconds,
        "command": about["command"],
        "elastic": about["elastic"],
        "version": about.get("version", ""),
        "settings": about["settings"],
        "costs": about.get("costs", {}),
        "hosts": [
            {"host": host, "ranks": ranks}
            | {name: job.hosts.get(host, {}).get(name) for name in ("node", "system", "python", "cores")}
            for host, ranks in about["hosts"].items()
        ],
    }


def _end(job: LeftJob) -> Facts:
    """``how``: "succeeded", "failed", "interrupted", or "unknown" where the log ends before the job."""
    end = job.end
    if not end:
        how = "unknown"
    elif end["interrupted_by"] is not None:
        how = "interrupted"
    else:
        how = "succeeded" if end["exit_code"] == 0 else "failed"
    kept = ("exit_code", "message", "interrupted_by", "failed")
    return {"how": how, **{name: end.get(name) for name in kept}}


def _ranks(job: LeftJob, last: Counters) -> list[Facts]:
    """Where each rank's time went, up to the end of its last step; without steps, to the last look."""
    found_rows = {row.rank: row for row in rows(NO_RANKS, last)}
    peaks: dict[int, int] = {}
    for _, counters in job.looks:
        for rank, each in counters.items():
            peaks[rank] = max(peaks.get(rank, 0), each["memory_bytes"], each.get("peak_memory_bytes", 0))
    return [
        _rank(row, last[rank], peaks.get(rank, 0), job.host_of.get(rank, row.host))
        for rank, row in sorted(found_rows.items())
    ]


def _rank(row: Row, counters: Mapping[str, Any], peak: int, host: str) -> Facts:
    steps = counters.get("steps", 0)
    age = counters.get("seconds", 0.0)
    seconds = counters.get("last_step_seconds", 0.0) or age
    collectives = counters.get("collectives", {}).values()
    waited = min(seconds, counters.get("waited_seconds", 0.0))
    moved = min(seconds - waited, sum(each["move_seconds"] for each in collectives))
    return {
        "rank": row.rank,
        "host": host,
        "steps": steps,
        "seconds": seconds,
        "waited_seconds": waited,
        "moved_seconds": moved,
        "computed_seconds": seconds - waited - moved,
        "waited_for_seconds": row.waited_for * age,
        "cpu_seconds": counters["cpu_seconds"],
        "peak_memory_bytes": peak,
        "calls": sum(each["calls"] for each in collectives),
        "failed": sum(each["failed"] for each in collectives),
        "bytes": sum(each["bytes"] for each in collectives),
        "stalls": counters.get("stalls", 0),
        "paths": dict(counters.get("paths", {})),
        "warning": counters["warning"],
    }


def _intervals(job: LeftJob) -> list[Facts]:
    """What happened between two looks, where all ranks ran. Seconds count from the start of the launcher."""
    found: list[Facts] = []
    for (since, before), (until, after) in pairwise(job.looks):
        is_comparable = all(_is_comparable(before.get(rank, {}), each) for rank, each in after.items())
        if until - since < 1e-3 or not after or not is_comparable:
            continue
        ranks = [
            {
                "rank": row.rank,
                "steps": after[row.rank]["steps"] - before[row.rank]["steps"],
                "steps_per_second": row.steps_per_second,
                "bytes_per_second": row.bytes_per_second,
                "waited": row.waited,
                "waited_for": row.waited_for,
                "cpu": row.cpu,
                "memory_bytes": row.memory_bytes,
            }
            for row in rows(before, after)
        ]
        found.append({"from": since, "until": until, "ranks": ranks})
    return found


def _is_comparable(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return "pid" in before and before.get("pid") == after.get("pid") and bool(after["runs"])


def _collectives(last: Counters) -> list[Facts]:
    """By collective, of all ranks together; the most seconds first."""
    sums: dict[str, Facts] = {}
    names = ("calls", "failed", "bytes", "agree_seconds", "move_seconds")
    for each in last.values():
        for collective, values in each.get("collectives", {}).items():
            into = sums.setdefault(collective, {"collective": collective, **dict.fromkeys(names, 0)})
            for name in names:
                into[name] += values[name]
    return sorted(sums.values(), key=lambda row: row["agree_seconds"] + row["move_seconds"], reverse=True)
