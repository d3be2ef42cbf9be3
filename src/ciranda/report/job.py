"""What a job has left in its folder, as `ciranda.launch.job_log` wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ciranda.launch import control
from ciranda.launch.errors import LaunchError
from ciranda.launch.job_log import FORMAT, NAME
from ciranda.launch.output_dir import RECORDS, STALL
from ciranda.launch.rates import Counters, by_rank

#: A line of the log: its kind, when it was written, in seconds from the launcher's start, and more.
Line = Mapping[str, Any]


@dataclass
class LeftJob:
    """A job that has ended, that runs, or whose log ends before.

    Attributes:
        about: what it was.
        hosts: what their agents said of them.
        looks: when the counters were read, and what they said, in the order of time.
        events: stalls, stragglers and the ends of ranks, in the order of time.
        end: how it ended; empty if the log ends before.
        runs: whether its launcher, which is one of this user's on this machine, still does.
        records: the files with the ranks' calls, by rank, where they were recorded.
        stalls: the files on where the ranks stood when some last waited long for others, by rank.
        has_records: whether calls were recorded, though perhaps none.
        lacks_records: why the records are incomplete; None if they are not known to be.
        clocks: by host, how its clock was ahead of the launcher's, as `ciranda.launch.clocks.Reading`.
    """

    directory: Path
    about: Line = field(default_factory=dict)
    hosts: dict[str, Line] = field(default_factory=dict)
    looks: list[tuple[float, Counters]] = field(default_factory=list)
    events: list[Line] = field(default_factory=list)
    end: Line = field(default_factory=dict)
    runs: bool = False
    records: dict[int, Path] = field(default_factory=dict)
    stalls: dict[int, Path] = field(default_factory=dict)
    has_records: bool = False
    lacks_records: str | None = None
    clocks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host_of(self) -> dict[int, str]:
        """The host of each rank; of an elastic job, of each place, also of those that came later."""
        came = {rank: each["host"] for _, counters in self.looks for rank, each in counters.items()}
        return came | {rank: host for host, ranks in self.about["hosts"].items() for rank in ranks}


def read(directory: Path) -> LeftJob:
    """What is in a folder of ``ciranda run --output-dir``; LaunchError if there is no log, or one of another format."""
    job = _read(directory)
    if job.end:
        return job
    runs = any(job_id == job.about["job"] for job_id, _ in control.jobs())
    job = _read(directory)  # it may have ended meanwhile
    return replace(job, runs=runs and not job.end)


def _read(directory: Path) -> LeftJob:
    path = directory / NAME
    try:
        with path.open(encoding="utf-8") as file:
            lines = [line for text in file if (line := _line_of(text))]
    except OSError as error:
        hint = "give a folder of 'ciranda run --output-dir'"
        raise LaunchError(f"{path}: {error.strerror}: {hint}", exit_code=2) from None
    job = LeftJob(directory)
    for line in lines:
        _take(job, line)
    if job.about.get("format") != FORMAT:
        raise LaunchError(f"{path}: it is no log of a job of format {FORMAT}", exit_code=2)
    host_of = job.host_of
    for folder in directory.glob("rank.*"):
        number = folder.name.removeprefix("rank.")
        if number.isascii() and number.isdecimal():
            for name, files in ((RECORDS, job.records), (STALL, job.stalls)):
                if int(number) in host_of and (folder / name).is_file():
                    files[int(number)] = folder / name
    return job


def _line_of(text: str) -> Line | None:
    """None for what a killed launcher has left incomplete."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "kind" in line and "at" in line else None


def _take(job: LeftJob, line: Line) -> None:
    kind = line["kind"]
    if kind == "job":
        job.about = line
    elif kind == "host":
        job.hosts[line["host"]] = line
    elif kind == "counters":
        job.looks.append((line["at"], by_rank({"counters": line["ranks"]})))
    elif kind == "records":
        job.has_records, job.clocks, job.lacks_records = True, line["clocks"], line.get("failure")
    elif kind == "end":
        job.end = line
    else:
        job.events.append(line)
