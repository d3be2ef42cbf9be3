"""Finds the rank for which the others wait again and again, from the counters of all ranks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ciranda.launch.rates import NO_RANKS, Counters, Row, rows

SHARE = 0.1  # of the time, by which the others wait longer for a straggler than for any other rank
STEPS = 30  # between two judgements, of which two name a rank: within 100 steps, where these take 0.1 s
_N_SAMPLES = 40  # find a place that has a tenth of the time
_TIMES = 2  # judgements in a row that must find the same rank: a rank that was slow once is no straggler


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for, and what it did in these steps."""

    row: Row
    n_steps: int

    def __str__(self) -> str:
        """``rank 1 (hostB) is a straggler: in the last 50 steps the others waited for it 34% of the time; ...``."""
        return (
            f"rank {self.row.rank} ({self.row.host}) is a straggler: in the last {self.n_steps} steps the others "
            f"waited for it {self.row.waited_for:.0%} of the time; it {self.row.doing}"
        )


def command_for_lines(rank: int, job: str = "") -> str:
    """The command that shows in which lines a rank is; ``job``: the beginning of its identifier, empty for the only."""
    return " ".join(filter(None, ("ciranda stacks", job, f"--ranks {rank} --samples {_N_SAMPLES}")))


class Stragglers:
    """Judges every so many steps, and seconds, and tells of a change only. Other looks add to what is seen of ranks."""

    def __init__(self, share: float = SHARE, n_steps: int = STEPS, n_seconds: float = 0.0) -> None:
        self._share = share
        self._n_steps = n_steps
        self._n_seconds = n_seconds
        self._before = NO_RANKS
        self._worst: int | None = None
        self._n_times = 0
        self._told: int | None = None

    @property
    def is_suspicious(self) -> bool:
        """Whether the next judgement may name a rank: more looks tell better what that rank does meanwhile."""
        return self._worst is not None and self._worst != self._told

    def look(self, now: Counters) -> Straggler | None:
        """Return a straggler to warn of, if it was not reported last. ``now``: the counters of all ranks."""
        if not _is_same_world(self._before, now):
            if _has_changed(self._before, now):
                self._worst = self._told = None
            self._before = now
            return None
        n_steps = min(now[rank]["steps"] - self._before[rank]["steps"] for rank in now)
        n_seconds = min(now[rank]["seconds"] - self._before[rank]["seconds"] for rank in now)
        if n_steps < self._n_steps or n_seconds < self._n_seconds:
            return None
        found = rows(self._before, now)
        self._before = now
        return self._judge(found, n_steps)

    def _judge(self, found: list[Row], n_steps: int) -> Straggler | None:
        second, first = sorted(found, key=lambda row: row.waited_for)[-2:]
        worst = first.rank if first.waited_for - second.waited_for > self._share else None
        self._n_times = self._n_times + 1 if worst == self._worst else 1
        self._worst = worst
        if self._n_times < _TIMES or worst == self._told:
            return None
        self._told = worst
        return None if worst is None else Straggler(first, n_steps)


def _has_changed(before: Counters, now: Counters) -> bool:
    """Whether a rank is another process than it was."""
    return any(before.get(rank, each).get("pid") != each.get("pid") for rank, each in now.items())


def _is_same_world(before: Counters, now: Counters) -> bool:
    if len(now) < 2 or before.keys() != now.keys():
        return False
    return all("pid" in now[rank] and before[rank].get("pid") == now[rank]["pid"] for rank in now) and all(
        before[rank]["seconds"] <= now[rank]["seconds"] for rank in now
    )
