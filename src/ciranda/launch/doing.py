"""What a rank's process did between two looks, apart from its calls: why it did not compute, if it did not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NOTABLE = 0.1  # the least share of the time that is mentioned
_BUSY = 0.8  # of a core
_MOSTLY = 0.5  # of the time


@dataclass(frozen=True)
class Doing:
    """What the process did, as shares of the time between two looks. All are 0 if there was only one look.

    Attributes:
        is_known: whether the system reports more than ``cpu``.
        cpu: the number of cores that the process kept busy.
        waited: it waited for other ranks.
        stopped: a signal or a debugger had stopped it; a share of the looks.
        throttled: its cgroup had used up its limit.
        lacked_core: its main thread was ready, but had no core.
        disk: it waited for the disk.
        memory: its cgroup lacked memory.
        slept, thread, input: its main thread slept, waited for another, or waited for input; shares of the looks.
        yields_per_second: how often it gave up its core by itself.
        preemptions_per_second: how often another process took its core.
    """

    is_known: bool = False
    cpu: float = 0.0
    waited: float = 0.0
    stopped: float = 0.0
    throttled: float = 0.0
    lacked_core: float = 0.0
    disk: float = 0.0
    memory: float = 0.0
    slept: float = 0.0
    thread: float = 0.0
    input: float = 0.0
    yields_per_second: float = 0.0
    preemptions_per_second: float = 0.0

    @property
    def word(self) -> str:
        """One word for what it mostly did, for a table."""
        share, word, _ = max(self._hindrances(), default=(0.0, "", ""))
        if share > 0 and share >= max(self.cpu, self._idle_share()):
            return word
        return "computes" if self.cpu >= self._idle_share() else self._idle()[0]

    def __str__(self) -> str:
        """``was throttled by its cgroup's limit 60% of the time (kept 40% of a core busy)``."""
        said = [f"{text} {share:.0%} of the time" for share, _, text in sorted(self._hindrances(), reverse=True)]
        if self.cpu >= _BUSY:
            said.append("computed")
        if not said or self._idle_share() > _MOSTLY:
            said.insert(0, f"{self._idle()[1]} {self._idle_share():.0%} of the time")
        taken = f"; others took its core {self.preemptions_per_second:.0f} times a second" if self.is_preempted else ""
        return f"{', '.join(said)} (kept {self.cpu:.0%} of a core busy{taken})"

    def _hindrances(self) -> Iterator[tuple[float, str, str]]:
        """Yield the share, a word and a phrase for each notable reason why it did not compute."""
        found = [
            (self.stopped, "stopped", "was stopped by a signal or a debugger"),
            (self.throttled, "throttled", "was throttled by its cgroup's limit"),
            # A throttled process has no core either: named once.
            (0.0 if self.throttled >= _NOTABLE else self.lacked_core, "no core", "waited for a core"),
            (self.disk, "disk", "waited for the disk"),
            (self.memory, "memory", "lacked memory"),
        ]
        return (each for each in found if each[0] >= _NOTABLE)

    def _idle_share(self) -> float:
        """Return the share of the time in which it did not compute, for no reason known here."""
        return max(0.0, 1.0 - self.cpu - self.waited - sum(share for share, _, _ in self._hindrances()))

    @property
    def is_preempted(self) -> bool:
        """Whether other processes took its core at least once a second."""
        return self.preemptions_per_second >= 1

    def _idle(self) -> tuple[str, str]:
        """Return a word and a phrase for what its main thread did while it did not compute, according to the looks."""
        share, *words = max(
            (self.slept, "sleeps", "slept"),
            (self.thread, "blocked", "waited for another of its threads"),
            (self.input, "input", "waited for input"),
        )
        return (words[0], words[1]) if share > 0 else ("idle", "waited for something else, or slept")


def between(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> Doing:
    """Return what a process did between two looks, ``seconds`` apart; each is its counters, with those of `Signs`."""

    def more(name: str) -> float:
        return max(0.0, float(after.get(name, 0)) - float(before.get(name, 0)))

    if "cpu_seconds" not in before or seconds <= 0:
        return Doing()
    cpu = more("cpu_seconds") / seconds
    if "looks" not in before or "looks" not in after:
        return Doing(cpu=cpu)

    def share(name: str) -> float:
        return min(1.0, more(f"{name}_seconds") / seconds)

    looks = more("looks")

    def of_looks(name: str) -> float:
        return more(f"{name}_looks") / looks if looks else 0.0

    is_idle = cpu < _BUSY  # pressure is of all processes of the cgroup: one that computes does not suffer from it
    return Doing(
        is_known=True,
        cpu=cpu,
        waited=share("waited"),
        stopped=of_looks("stopped"),
        throttled=share("throttled"),
        lacked_core=share("core_wait"),
        disk=max(share("disk_wait"), share("disk_pressure") if is_idle else 0.0),
        memory=share("memory_pressure") if is_idle else 0.0,
        slept=of_looks("slept"),
        thread=of_looks("thread"),
        input=of_looks("input"),
        yields_per_second=more("yielded") / seconds,
        preemptions_per_second=more("preempted") / seconds,
    )
