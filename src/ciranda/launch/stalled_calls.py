"""The calls that wait for ranks, as one rank's engine says in its stall warnings. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

# What cpp/agree/negotiation.cc writes: at the first warning with the ranks that have submitted the call, and later,
# whenever its waiting time has doubled, without.
_CALL = re.compile(
    r"'(?P<name>.+?)' (?:has waited (?P<first>[\d.]+) s|still waits, after (?P<again>[\d.]+) s,) for (?P<rest>.*)"
)
_SUBMITTED = ". Ranks that submitted it: "
_MISSING = re.compile(
    r"rank (?P<rank>\d+)(?: \(host (?P<host>[^)]*)\))?, which "
    r"(?:last submitted '(?P<last>.*?)' (?P<ago>[\d.]+) s ago|has submitted nothing yet)"
)
_MORE = re.compile(r", and (\d+) more")
_SLACK_SECONDS = 2.0  # that a warning may come late
_MOST_CALLS = 64


class MissingRank(NamedTuple):
    """A rank that a call waits for: the name of the call that it submitted last, and how long before the warning.

    Both are None if it has submitted none.
    """

    rank: int
    host: str
    last: str | None
    seconds: float | None


@dataclass(frozen=True)
class StalledCall:
    """A call that not all ranks have made.

    Attributes:
        submitted_by: ranks that have, when it was first warned of; there are ``n_more_submitted`` besides.
        missing: ranks that have not, when it was last warned of; there are ``n_more_missing`` besides.
    """

    name: str
    waited_seconds: float
    submitted_by: tuple[int, ...]
    n_more_submitted: int
    missing: tuple[MissingRank, ...]
    n_more_missing: int


class StalledCalls:
    """What the warnings of one rank say of calls, for as long as they may wait."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[float, StalledCall]] = {}  # by name, with the time of the last warning

    def take(self, warning: str, now: float) -> None:
        """Take the text of a warning; one about something else changes nothing."""
        found = _CALL.match(warning)
        if found is None:
            return
        missing, _, submitted = found["rest"].partition(_SUBMITTED)
        name = found["name"]
        before = self._calls.pop(name, None)
        ranks, n_more = _ranks_of(submitted.partition(".")[0])
        if not submitted and before is not None:
            ranks, n_more = before[1].submitted_by, before[1].n_more_submitted
        if len(self._calls) >= _MOST_CALLS:
            self._calls = {each: (when, call) for each, (when, call) in self._calls.items() if _waits(call, when, now)}
        if len(self._calls) < _MOST_CALLS:
            call = StalledCall(
                name, float(found["first"] or found["again"]), ranks, n_more, _missing_of(missing), _more_of(missing)
            )
            self._calls[name] = (now, call)

    def at(self, now: float) -> list[StalledCall]:
        """Those that still wait, as no warning says that: who waits on is warned of when its time has doubled."""
        found = [call for when, call in self._calls.values() if _waits(call, when, now)]
        return sorted(found, key=lambda call: -call.waited_seconds)


def _waits(call: StalledCall, when: float, now: float) -> bool:
    return now - when <= call.waited_seconds + _SLACK_SECONDS


def _ranks_of(text: str) -> tuple[tuple[int, ...], int]:
    more = _more_of(text)
    return tuple(int(number) for number in re.findall(r"\d+", _MORE.sub("", text))), more


def _missing_of(text: str) -> tuple[MissingRank, ...]:
    return tuple(
        MissingRank(int(each["rank"]), each["host"] or "", each["last"], float(each["ago"]) if each["ago"] else None)
        for each in _MISSING.finditer(text)
    )


def _more_of(text: str) -> int:
    found = _MORE.search(text)
    return int(found[1]) if found else 0
