"""What the ranks of a job have done between two looks at their counters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ciranda.launch.doing import Doing, between
from ciranda.launch.in_flight import LONG_SECONDS, Call

#: The counters of all ranks at one time, by rank.
Counters = Mapping[int, Mapping[str, Any]]
NO_RANKS: Counters = {}


@dataclass(frozen=True)
class Row:
    """One rank between two looks.

    Attributes:
        state: "runs", "has ended"; "starts" before it has called ``init()``.
        waited: the share of the time in which it waited for other ranks.
        waited_for: the share of the time in which others waited for it, as the last to come.
        cpu: how many cores its process has kept busy.
        doing: what it did beside its calls, as far as the system tells.
        memory_bytes: what its process uses.
        algorithm: by which most of the time was spent that calls took to move data; empty where none has a name.
        link: the rank with which it exchanged most bytes over a link, -1 for none, and how many a second.
        engine_memory_bytes: what its engine holds: slots, kept results, ``empty()``.
        in_flight: calls that have not ended, and the oldest of them, as `ciranda.launch.in_flight` has them.
        warning: its engine's last.
    """

    rank: int
    host: str
    state: str
    steps_per_second: float
    calls_per_second: float
    bytes_per_second: float
    waited: float
    waited_for: float
    cpu: float
    doing: Doing
    memory_bytes: int
    algorithm: str
    link: int
    link_bytes_per_second: float
    retries_per_second: float
    engine_memory_bytes: int
    in_flight: int
    calls_in_flight: list[Call]
    warning: str


def by_rank(answer: Mapping[str, Any]) -> Counters:
    """What a launcher has answered."""
    return {each["rank"]: each for each in answer["counters"]}


def rows(before: Counters, after: Counters) -> list[Row]:
    """What each rank has done between two looks."""
    held_up = _held_up(before, after)
    found = []
    absent = _absent(after)
    for rank, now in sorted(after.items()):
        earlier = _earlier(before, rank, now)
        link, link_bytes = _busiest_link(earlier, now)
        seconds = now.get("seconds", 0.0) - earlier.get("seconds", 0.0)
        found.append(
            Row(
                rank=rank,
                host=now["host"],
                state="has ended" if not now["runs"] else "runs" if "pid" in now else "starts",
                steps_per_second=_rate(now.get("steps", 0) - earlier.get("steps", 0), seconds),
                calls_per_second=_rate(now.get("calls", 0) - earlier.get("calls", 0), seconds),
                bytes_per_second=_rate(now.get("bytes", 0) - earlier.get("bytes", 0), seconds),
                waited=_share(now.get("waited_seconds", 0.0) - earlier.get("waited_seconds", 0.0), seconds),
                waited_for=_share(held_up.get(rank, 0.0) + min(absent.get(rank, 0.0), seconds), seconds),
                cpu=_rate(now["cpu_seconds"] - earlier.get("cpu_seconds", now["cpu_seconds"]), seconds),
                doing=between(earlier, now, seconds),
                memory_bytes=now["memory_bytes"],
                algorithm=_most_used_algorithm(earlier, now),
                link=link,
                link_bytes_per_second=_rate(link_bytes, seconds),
                retries_per_second=_rate(_retries(now) - _retries(earlier), seconds),
                engine_memory_bytes=sum(now.get("memory_bytes_of", {}).values()),
                in_flight=now.get("in_flight", 0),
                calls_in_flight=now.get("calls_in_flight", []),
                warning=now["warning"],
            )
        )
    return found


def _earlier(before: Counters, rank: int, now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The counters of a rank before; nothing if it is of another world, which has begun meanwhile."""
    earlier = before.get(rank, {})
    return earlier if is_same_world(earlier, now) else {}


def is_same_world(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a rank was the same process in the same world at two looks: its counters begin anew with each."""
    is_same = all(before.get(name) == after.get(name) for name in ("pid", "generation"))
    return is_same and before.get("seconds", 0.0) <= after.get("seconds", 0.0)


def _held_up(before: Counters, after: Counters) -> dict[int, float]:
    """For how long others have waited for each rank: calls by the log, and the longest wait in direct rounds."""
    logged: dict[str, int] = {}
    direct: dict[str, int] = {}
    for rank, now in after.items():
        earlier = _earlier(before, rank, now)
        for last, ns in _more(earlier, now, "held_up_ns"):
            logged[last] = logged.get(last, 0) + ns
        for last, ns in _more(earlier, now, "own_waits_ns"):
            if ns > direct.get(last, 0):
                direct[last] = ns
    return {int(last): (logged.get(last, 0) + direct.get(last, 0)) / 1e9 for last in {*logged, *direct}}


def _absent(now: Counters) -> dict[int, float]:
    """For how long others have waited for each rank in calls that they are still in, and it is not.

    Those waits are booked on nobody yet. Only calls of the world count, which all ranks make, and only ranks that run,
    and whose calls are all known.
    """
    calls = {rank: _waiting_calls(of) for rank, of in now.items() if _are_all_known(of)}
    longest: dict[str, float] = {}
    for of in calls.values():
        for call, seconds in of.items():
            longest[call] = max(seconds, longest.get(call, 0.0))
    absent = {
        rank: max((seconds for call, seconds in longest.items() if call not in of), default=0.0)
        for rank, of in calls.items()
        if not any(call.startswith("join ") for call in of)
    }
    return {rank: seconds for rank, seconds in absent.items() if seconds >= LONG_SECONDS}


def _waiting_calls(counters: Mapping[str, Any]) -> dict[str, float]:
    """The calls of the world that the rank is in, on which the ranks have not agreed, and for how long."""
    calls = counters["calls_in_flight"]
    return {f"{call['collective']} {call['name']}": call["seconds"] for call in calls
            if not call["agreed"] and call["process_set"] == 0}  # fmt: skip


def _are_all_known(counters: Mapping[str, Any]) -> bool:
    is_known = "calls_in_flight" in counters and len(counters["calls_in_flight"]) == counters["in_flight"]
    return is_known and bool(counters["runs"])


def _more(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> Iterator[tuple[str, int]]:
    """By how much each of these totals has grown."""
    earlier = before.get(name, {})
    return ((last, ns - earlier.get(last, 0)) for last, ns in after.get(name, {}).items())


def _most_used_algorithm(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    earlier = before.get("algorithms", {})
    more = {
        name: values["move_seconds"] - earlier.get(name, {}).get("move_seconds", 0.0)
        for name, values in after.get("algorithms", {}).items()
        if values["calls"] > earlier.get(name, {}).get("calls", 0)
    }
    return max(more, key=lambda name: more[name], default="")


def _busiest_link(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[int, int]:
    """The peer, and the bytes sent and received."""
    earlier = before.get("links", {})
    more = {
        int(peer): sum(link[name] - earlier.get(peer, {}).get(name, 0) for name in ("sent_bytes", "received_bytes"))
        for peer, link in after.get("links", {}).items()
        if not earlier or peer in earlier  # of another one, what it has carried meanwhile is not known
    }
    peer = max(more, key=lambda peer: more[peer], default=-1)
    return (peer, more[peer]) if more.get(peer, 0) > 0 else (-1, 0)


def _retries(counters: Mapping[str, Any]) -> int:
    return int(counters.get("all_links", {}).get("retries", 0))


def _rate(n: float, seconds: float) -> float:
    return max(0.0, n) / seconds if seconds > 0 else 0.0


def _share(part: float, seconds: float) -> float:
    return min(1.0, _rate(part, seconds))
