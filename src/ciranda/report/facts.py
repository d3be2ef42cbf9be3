"""The facts of a job for its report, in plain values for JSON: what `ciranda report --json` writes.

The counters tell of the whole job; the records of some steps, where they were kept, tell of single steps and of sizes.
docs/guide/observe.md has the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from ciranda.launch.doing import Doing, between
from ciranda.launch.rates import NO_RANKS, Row, rows
from ciranda.report.advice import advice_of
from ciranda.report.hangs import Hang, at_the_end, hangs_of, without_hangs
from ciranda.report.job import LeftJob
from ciranda.report.missing import missing_of
from ciranda.report.recorded import steps_of
from ciranda.report.standstill import standstill_of
from ciranda.report.unlike import unlike_others
from ciranda.report.worlds import World, by_world_rank, worlds_of

FORMAT = 1

_SUMS = (
    "steps", "seconds", "waited_seconds", "moved_seconds", "computed_seconds", "waited_for_seconds", "calls", "failed",
    "bytes", "stalls",
)  # fmt: skip

Facts = dict[str, Any]


def facts_of(job: LeftJob) -> Facts:
    """All that the report of a job says; LaunchError if its records are of another version."""
    hangs = hangs_of(job)
    counted = without_hangs(job, hangs)
    worlds = worlds_of(counted) if job.about["elastic"] else [World(len(job.host_of), 0.0, 0.0, _last(counted))]
    facts: Facts = {
        "format": FORMAT,
        "job": _about(job),
        "end": _end(job, at_the_end(job, hangs)),
        "ranks": _ranks(job, counted, worlds),
        "worlds": [_world(world) for world in worlds] if job.about["elastic"] else [],
        "intervals": _intervals(job),
        "collectives": _collectives(worlds),
        "sizes": _sizes(worlds),
        "algorithms": _algorithms(worlds),
        "links": _links(job, worlds),
        "events": [dict(event) for event in job.events],
        "recorded": steps_of(job),
        "standstill": standstill_of(job),
        "hangs": [hang.facts() for hang in hangs],
    }
    facts["missing"] = list(missing_of(job, facts))
    facts["advice"] = advice_of(facts)
    return facts


def _last(job: LeftJob) -> dict[int, Mapping[str, Any]]:
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


def _end(job: LeftJob, hang: Hang | None) -> Facts:
    """``how``: "succeeded", "failed", "interrupted", "running", or "unknown" where the log ends before the job.

    ``hang``: in which it ended, or is now.
    """
    end = job.end
    if not end:
        how = "running" if job.runs else "unknown"
    elif end["interrupted_by"] is not None:
        how = "interrupted"
    else:
        how = "succeeded" if end["exit_code"] == 0 else "failed"
    kept = ("exit_code", "message", "interrupted_by", "failed")
    return {"how": how, **{name: end.get(name) for name in kept}, "hang": hang.facts() if hang else None}


def _ranks(job: LeftJob, counted: LeftJob, worlds: Sequence[World]) -> list[Facts]:
    """Where each rank's time went, up to the end of its last step; without steps, to the last look.

    Of an elastic job they are places, each with all of its processes: the sums over the worlds. What a rank is in, and
    has said, is of the last look of all; the rest of those that are `counted`.
    """
    peaks: dict[int, int] = {}
    for _, looked in job.looks:
        for rank, each in looked.items():
            peaks[rank] = max(peaks.get(rank, 0), each["memory_bytes"], each.get("peak_memory_bytes", 0))
    found: dict[int, Facts] = {}
    cpu_seconds: dict[tuple[int, int], float] = {}  # of each process
    for world in worlds:
        for row in rows(NO_RANKS, world.last):
            counters = world.last[row.rank]
            rank = counters["rank"]
            process = rank, counters.get("pid", 0)
            cpu_seconds[process] = max(counters["cpu_seconds"], cpu_seconds.get(process, 0.0))
            of_world = _rank(row, counters, peaks.get(rank, 0), job.host_of.get(rank, row.host))
            found[rank] = _sum(found[rank], of_world) if rank in found else of_world
    for rank, facts in found.items():
        facts["cpu_seconds"] = sum(seconds for (of, _), seconds in cpu_seconds.items() if of == rank)
        facts["engine_memory_bytes"] = _engine_memory(job, rank)
        facts["doing"] = _doing(_did(counted, rank))
    for facts, unlike in zip(found.values(), unlike_others([*found.values()]), strict=True):
        facts["unlike_others"] = unlike
    for rank, counters in _last(job).items():
        if rank in found:
            found[rank] |= _latest(counters)
            if not job.about["elastic"]:
                found[rank]["stalls"], found[rank]["failed"] = counters.get("stalls", 0), _n_failed(counters)
    return [facts for _, facts in sorted(found.items())]


def _engine_memory(job: LeftJob, rank: int) -> dict[str, int]:
    """The most that its engine held of each kind, at any look."""
    held = [looked[rank].get("memory_bytes_of", {}) for _, looked in job.looks if rank in looked]
    return {name: max((each.get(name, 0) for each in held), default=0) for name in ("slot", "kept", "empty")}


def _did(job: LeftJob, rank: int) -> Doing:
    """What the last process of a rank did between the first and the last look at it while it ran."""
    seen = [(at, looked[rank]) for at, looked in job.looks if {"looks", "pid"} <= looked.get(rank, {}).keys()]
    of_last = [(at, each) for at, each in seen if each["pid"] == seen[-1][1]["pid"]]
    if len(of_last) < 2:
        return Doing()
    (since, first), (until, last) = of_last[0], of_last[-1]
    return between(first, last, until - since)


def _doing(did: Doing) -> Facts | None:
    return {"words": str(did), "mostly": did.word, **asdict(did)} if did.is_known else None


def _sum(first: Facts, second: Facts) -> Facts:
    """Of two worlds of one place; what is no sum is the second's."""
    sums = {name: first[name] + second[name] for name in _SUMS}
    paths = {
        path: first["paths"].get(path, 0) + second["paths"].get(path, 0) for path in first["paths"] | second["paths"]
    }
    return {**second, **sums, "paths": paths}


def _world(world: World) -> Facts:
    """What one world of an elastic job did; its ranks by the numbers of their places."""
    ranks = [_rank(row, world.last[row.rank], 0, row.host) for row in rows(NO_RANKS, world.last)]
    seconds = sum(rank["seconds"] for rank in ranks)
    worst = max(ranks, key=lambda rank: rank["waited_for_seconds"])
    return {
        "from": world.begin,
        "until": world.end,
        "size": world.size,
        "ranks": [rank["rank"] for rank in ranks],
        "steps": max(rank["steps"] for rank in ranks),
        "step_seconds": max((rank["seconds"] / rank["steps"] for rank in ranks if rank["steps"]), default=0.0),
        "waited": sum(rank["waited_seconds"] for rank in ranks) / seconds if seconds else 0.0,
        "waited_for": worst["rank"] if worst["waited_for_seconds"] > 0 else None,
    }


def _rank(row: Row, counters: Mapping[str, Any], peak: int, host: str) -> Facts:
    steps = counters.get("steps", 0)
    age = counters.get("seconds", 0.0)
    seconds = counters.get("last_step_seconds", 0.0) or age
    collectives = counters.get("collectives", {}).values()
    waited = min(seconds, counters.get("waited_seconds", 0.0))
    moved = min(seconds - waited, sum(each["move_seconds"] for each in collectives))
    return {
        "rank": counters["rank"],
        "host": host,
        "steps": steps,
        "seconds": seconds,
        "waited_seconds": waited,
        "moved_seconds": moved,
        "computed_seconds": seconds - waited - moved,
        "waited_for_seconds": row.waited_for * age,
        "cpu_seconds": counters["cpu_seconds"],
        "peak_memory_bytes": peak,
        "calls": counters.get("calls", 0),
        "failed": _n_failed(counters),
        "bytes": counters.get("bytes", 0),
        "stalls": counters.get("stalls", 0),
        "paths": dict(counters.get("paths", {})),
        **_latest(counters),
    }


def _n_failed(counters: Mapping[str, Any]) -> int:
    return sum(each["failed"] for each in counters.get("collectives", {}).values())


def _latest(counters: Mapping[str, Any]) -> Facts:
    """What a rank was in, and had said, at the last look."""
    return {
        "calls_in_flight": counters.get("calls_in_flight", []),
        "last_calls": counters.get("last_calls", []),
        "warning": counters["warning"],
    }


def _intervals(job: LeftJob) -> list[Facts]:
    """What happened between two looks, where all ranks ran. Seconds count from the start of the launcher."""
    found: list[Facts] = []
    for (since, earlier), (until, later) in pairwise(job.looks):
        before, after = by_world_rank(earlier, later) if job.about["elastic"] else (earlier, later)
        is_comparable = all(_is_comparable(before.get(rank, {}), each) for rank, each in after.items())
        if until - since < 1e-3 or not after or not is_comparable:
            continue
        ranks = [
            {
                "rank": after[row.rank]["rank"],
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


def _collectives(worlds: Sequence[World]) -> list[Facts]:
    """By collective, of all ranks together; the most seconds first."""
    sums: dict[str, Facts] = {}
    names = ("calls", "failed", "bytes", "agree_seconds", "move_seconds")
    for each in (counters for world in worlds for counters in world.last.values()):
        for collective, values in each.get("collectives", {}).items():
            into = sums.setdefault(collective, {"collective": collective, **dict.fromkeys(names, 0)})
            for name in names:
                into[name] += values[name]
    return sorted(sums.values(), key=lambda row: row["agree_seconds"] + row["move_seconds"], reverse=True)


def _sizes(worlds: Sequence[World]) -> list[Facts]:
    """By collective and class of sizes, a power of 4, of all ranks together; the most seconds first."""
    sums: dict[tuple[str, str], Facts] = {}
    for each in (counters for world in worlds for counters in world.last.values()):
        for collective, values in each.get("collectives", {}).items():
            for least, of_size in values.get("sizes", {}).items():
                begin = {"collective": collective, "bytes_from": int(least) if int(least) > 1 else 0}
                _add(sums.setdefault((collective, least), begin), of_size)
    return sorted(sums.values(), key=lambda row: row["agree_seconds"] + row["move_seconds"], reverse=True)


def _algorithms(worlds: Sequence[World]) -> list[Facts]:
    """By algorithm, of all ranks together; the most seconds first."""
    sums: dict[str, Facts] = {}
    for each in (counters for world in worlds for counters in world.last.values()):
        for algorithm, values in each.get("algorithms", {}).items():
            _add(sums.setdefault(algorithm, {"algorithm": algorithm}), values)
    return sorted(sums.values(), key=lambda row: row["move_seconds"], reverse=True)


def _add(sums: Facts, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        sums[name] = sums.get(name, 0) + value


def _links(job: LeftJob, worlds: Sequence[World]) -> list[Facts]:
    """From rank to rank, those that have carried most first; of an elastic job, in its last world, by place."""
    last = worlds[-1].last if worlds else {}
    found = [
        {"rank": counters["rank"], "peer": last.get(int(peer), {"rank": int(peer)})["rank"],
         "seconds": counters["seconds"], **link, "most_queued_bytes": _most_queued(job, counters, peer)}
        for counters in last.values()
        for peer, link in counters.get("links", {}).items()
    ]  # fmt: skip
    return sorted(found, key=lambda link: -link["sent_bytes"])


def _most_queued(job: LeftJob, counters: Mapping[str, Any], peer: str) -> int:
    """At any look at the same world."""
    looks = (looked.get(counters["rank"], {}) for _, looked in job.looks)
    of_world = (look for look in looks if all(look.get(name) == counters.get(name) for name in ("pid", "generation")))
    return max((look.get("links", {}).get(peer, {}).get("queued_bytes", 0) for look in of_world), default=0)
