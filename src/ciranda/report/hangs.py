"""Times in which the ranks of a job stood still because they waited long for one, from its stalls and counters. Pure.

While a call waits for a rank, the others count that time as waited, but it is booked on the rank only once the rank
makes the call. A rank that never does would go without blame, so that the time of such a hang is told by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ciranda.launch.in_flight import LONG_SECONDS
from ciranda.launch.rates import Counters, is_same_world
from ciranda.report.job import LeftJob

#: Before any warning others must have waited for as long, and for as many steps.
_LEAST_SECONDS, _STEPS = 3.0, 10.0

Looks = Sequence[tuple[float, Counters]]


@dataclass(frozen=True)
class Hang:
    """From when to when others waited for a rank, in seconds since the launcher's start.

    Attributes:
        where: the rank stood, at the last warning; empty before the first.
        is_over: whether the rank has made a call since, in the same world.
    """

    rank: int
    host: str
    where: str
    begin: float
    end: float
    is_over: bool

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin

    def facts(self) -> dict[str, Any]:
        """For the report, in plain values."""
        return {**asdict(self), "seconds": self.seconds}


def hangs_of(job: LeftJob) -> list[Hang]:
    """One for each rank and time that warnings were about, in the order of time, and that of the last look."""
    found: list[Hang] = []
    for event in job.events:
        if event["kind"] != "stall":
            continue
        at = min(event["at"], job.looks[-1][0] if job.looks else 0.0)
        same = next((hang for hang in found if hang.rank == event["rank"] and hang.end >= at), None)
        if same is not None:
            found[found.index(same)] = replace(same, where=event["where"])
        elif hang := _hang(job.looks, event):
            found.append(hang)
    if not job.end.get("failed") and not any(not hang.is_over for hang in found):
        found += _before_a_warning(job.looks)
    return found


def _before_a_warning(looks: Looks) -> Iterator[Hang]:
    """That in which the ranks are at the last look, if it is for one rank, and longer than a slow step."""
    if not looks:
        return
    at, looked = looks[-1]
    absent = [rank for rank, counters in looked.items() if not _is_in_a_call(counters)]
    if len(absent) != 1:
        return
    (rank,) = absent
    waited = _longest_wait(rank, looked, of_world=True)
    step = max(
        each.get("last_step_seconds", 0.0) / each["steps"] if each.get("steps") else 0.0 for each in looked.values()
    )
    if waited >= max(_LEAST_SECONDS, _STEPS * step):
        yield Hang(rank, looked[rank]["host"], "", at - waited, at, False)


def _is_in_a_call(counters: Mapping[str, Any]) -> bool:
    return bool(counters.get("in_flight", 1))


def _hang(looks: Looks, event: Mapping[str, Any]) -> Hang | None:
    """By the looks from the warning on; None if its rank had gone on before the first of them."""
    rank = event["rank"]
    later = [(at, looked) for at, looked in looks if at >= event["at"]]
    # A rank of a host that was lost is not in the last looks.
    seen = [(at, looked) for at, looked in later or looks[-1:] if "calls" in looked.get(rank, {})]
    if not seen:
        return None
    begin, first = seen[0]
    waited = _longest_wait(rank, first)
    if waited < LONG_SECONDS:
        return None
    still = [at for at, _ in _while_it_stands(rank, seen)]
    return Hang(rank, event["host"], event["where"], begin - waited, still[-1], _has_gone_on(rank, seen, len(still)))


def _longest_wait(rank: int, looked: Counters, *, of_world: bool = False) -> float:
    """Of the others, in a call that the rank is not in; ``of_world``: that all ranks make."""
    own = {_key(call) for call in looked[rank].get("calls_in_flight", [])}
    waits = (
        call["seconds"]
        for other, counters in looked.items()
        if other != rank
        for call in counters.get("calls_in_flight", [])
        if not call["agreed"] and _key(call) not in own and not (of_world and call["process_set"])
    )
    return max(waits, default=0.0)


def _key(call: Mapping[str, Any]) -> tuple[str, str, int]:
    return call["collective"], call["name"], call["process_set"]


def _while_it_stands(rank: int, looks: Looks) -> Iterator[tuple[float, Counters]]:
    """The first looks, up to the last at which the rank had made no further call."""
    first = looks[0][1][rank]
    for at, looked in looks:
        if not (is_same_world(first, looked[rank]) and looked[rank]["calls"] == first["calls"]):
            return
        yield at, looked


def _has_gone_on(rank: int, looks: Looks, n_still: int) -> bool:
    return n_still < len(looks) and is_same_world(looks[0][1][rank], looks[n_still][1][rank])


def at_the_end(job: LeftJob, hangs: Sequence[Hang]) -> Hang | None:
    """That in which the job ended or is now, the first that began; None if its ranks have gone on."""
    open_hangs = [hang for hang in hangs if not hang.is_over]
    if job.about["elastic"]:  # another world may have begun since
        open_hangs = [hang for hang in open_hangs if hang.end == job.looks[-1][0]]
    return min(open_hangs, key=lambda hang: hang.begin, default=None)


def without_hangs(job: LeftJob, hangs: Sequence[Hang]) -> LeftJob:
    """The job up to each hang that never was over, as far as its counters go; at least its first look."""
    unbooked = [hang for hang in hangs if not hang.is_over]
    # In a job that is not elastic, such a hang is the end.
    ends = [(hang.begin, hang.end if job.about["elastic"] else float("inf")) for hang in unbooked]
    kept = [(at, looked) for at, looked in job.looks if not any(begin <= at <= end for begin, end in ends)]
    return replace(job, looks=kept or job.looks[:1])
