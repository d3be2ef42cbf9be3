"""``ciranda timeline``: records the calls of a job that runs, and writes them as a timeline."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from ciranda.launch import control
from ciranda.launch.clocks import HostClock, Reading
from ciranda.launch.collecting import told
from ciranda.launch.errors import LaunchError
from ciranda.launch.rates import NO_RANKS, Counters, by_rank, is_same_world
from ciranda.launch.timeline import RankRecords, about, write_timeline
from ciranda.launch.trace_counters import events_of
from ciranda.launch.trace_writer import TraceFile

_LOOK_SECONDS = 0.1


class _KeptRecords:
    """What was recorded, in a file of the launcher's, which may end before all of it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def pieces(self, n_bytes: int) -> Iterator[bytes]:
        """Its content from the beginning, so many bytes at a time."""
        self._file.seek(0)
        while piece := self._file.read(n_bytes):
            yield piece


def timeline(
    output: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; compressed if it ends with .gz.",
                             show_default=False)
    ],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB", help="The beginning of its identifier.", show_default="the only one"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, metavar="N", help="End when every rank has completed N whole steps.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.0, metavar="SECONDS", help="End after so many seconds.",
                                   show_default="until Ctrl-C")
    ] = None,
) -> None:  # fmt: skip
    """Record the calls of all ranks of a job that runs, from now on, as a timeline for Perfetto. The job goes on."""
    to = TraceFile(output)
    try:
        _ask(job, "record")
        try:
            _wait(job, steps, seconds)
        except KeyboardInterrupt:
            print(file=sys.stderr)
        answer = _ask(job, "record end")
        _write(answer, to, job)
    finally:
        to.close()


def _ask(job: str | None, question: str) -> dict[str, Any]:
    answer = control.ask(job, question)
    if "refused" in answer:
        raise LaunchError(f"no timeline of this job: {answer['refused']}", exit_code=2)
    return answer


def _wait(job: str | None, steps: int | None, seconds: float | None) -> None:
    until = None if seconds is None else time.monotonic() + seconds
    made = _Steps()
    while until is None or time.monotonic() < until:
        # The step that is under way at the beginning is not recorded whole.
        if steps is not None and made.least(by_rank(control.ask(job, "totals"))) > steps:
            return
        time.sleep(_LOOK_SECONDS)


class _Steps:
    """How many steps have ended since the first look. The ranks of an elastic job count anew in each world."""

    def __init__(self) -> None:
        self._before: Counters = NO_RANKS
        self._more: dict[int, int] = {}

    def least(self, now: Counters) -> int:
        """Of the ranks that there are now."""
        for rank, each in now.items():
            before = self._before.get(rank, each)
            steps = each.get("steps", 0)
            more = steps - before.get("steps", 0) if is_same_world(before, each) else steps
            self._more[rank] = self._more.get(rank, 0) + more
        self._before = now
        return min((self._more[rank] for rank in now), default=0)


def _write(answer: dict[str, Any], to: TraceFile, job: str | None) -> None:
    clocks = {host: HostClock(Reading(*each) for each in found) for host, found in answer["clocks"].items()}
    with ExitStack() as files:
        ranks = [
            RankRecords(each["rank"], each["host"], clocks.get(each["host"], HostClock()),
                        _KeptRecords(files.enter_context(open(each["path"], "rb"))))
            for each in answer["ranks"]
        ]  # fmt: skip
        counters = _KeptRecords(files.enter_context(open(answer["counters"], "rb")))
        summary = write_timeline(ranks, to, answer["began_ns"], answer["is_elastic"])
        for event in events_of(counters, summary.begin_ns, summary.end_ns):
            to.put(event)
    to.complete(about(summary, ranks, answer["began_at"], job or "", []))
    for text in told(summary, (0, 0), to.path):
        print(f"ciranda: {text}", file=sys.stderr)
    if answer["failure"] is not None:
        raise LaunchError(f"the timeline is incomplete: {answer['failure']}")
