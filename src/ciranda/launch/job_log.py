"""``DIR/job.jsonl`` of ``--output-dir``: what a job was, and what the launcher learned of its ranks.

One JSON object a line, in the order of time; docs/guide/observe.md has the kinds. It is complete up to the moment at
which a launcher is killed. `ciranda.report` reads it. Standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ciranda._hidden import shown
from ciranda.launch import environment
from ciranda.launch.errors import LaunchError
from ciranda.launch.job import Job, Outcome

NAME = "job.jsonl"
FORMAT = 1
LEAST_SECONDS = 0.5  # between two looks at the counters that are kept
_RANKS_A_SECOND = 32  # are read at most, which takes less than 1% of a core of a host with all of them
_LOOKS = 200  # the next one is that part of the job's age later: of a day, 1300 are kept
_RANK_LOOKS, _FEWEST_LOOKS = 8192, 25  # with many ranks, there are fewer looks
_READ_BY_OTHERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


class JobLog:
    """Owns the open file. Without a folder, or once the disk takes no more, it keeps nothing.

    Attributes:
        deadline: when to call is_due() again, of time.monotonic(); None: no look at the counters is wanted.
    """

    def __init__(self, directory: Path | None) -> None:
        """LaunchError if the file cannot be written."""
        self._file: BinaryIO | None = None
        self._began = time.monotonic()
        self._least_seconds = LEAST_SECONDS
        self._looks = _LOOKS
        self.deadline: float | None = None
        if directory is None:
            return
        try:
            self._file = (directory / NAME).open("wb", buffering=0)
        except OSError as error:
            raise LaunchError(f"--output-dir: cannot write {directory / NAME}: {error.strerror}") from None

    def write(self, kind: str, **fields: Any) -> None:
        """Append a line with what happened now."""
        if self._file is None:
            return
        at = round(time.monotonic() - self._began, 6)
        line = json.dumps({"kind": kind, "at": at, **fields}, ensure_ascii=True, separators=(",", ":"))
        try:
            self._file.write(line.encode("ascii") + b"\n")
        except OSError:  # no space: the job itself goes on, and what the ranks write says so
            self.close()

    def write_job(self, job: Job) -> None:
        """Append what the job is."""
        if self._file is None:
            return
        self._least_seconds = max(LEAST_SECONDS, len(job.slots) / _RANKS_A_SECOND)
        self._looks = max(_FEWEST_LOOKS, min(_LOOKS, _RANK_LOOKS // len(job.slots)))
        hosts: dict[str, list[int]] = {}
        for slot in job.slots:
            hosts.setdefault(slot.host, []).append(slot.rank)
        self.write(
            "job",
            format=FORMAT,
            job=job.job_id,
            began=time.time(),
            command=job.argv,
            hosts=hosts,
            elastic=job.elastic is not None,
            settings=_settings(job),
            **_of_engine(),
        )

    def begin_looks(self) -> None:
        """The ranks run: their counters are wanted from now on."""
        if self._file is not None:
            self.deadline = time.monotonic() + self._least_seconds

    def is_due(self) -> bool:
        """Whether a look at the counters is due, which write_look() is to get; the next is so only after that."""
        if self.deadline is None or time.monotonic() < self.deadline:
            return False
        self.deadline = None
        return True

    def write_look(self, counters: Sequence[Mapping[str, Any]]) -> None:
        """Append the counters of all ranks."""
        self.write("counters", ranks=[*counters])
        if self._file is not None:
            now = time.monotonic()
            self.deadline = now + max(self._least_seconds, (now - self._began) / self._looks)

    def write_end(self, outcome: Outcome, counters: Sequence[Mapping[str, Any]]) -> None:
        """Append the last counters and how the job ended, and close the file."""
        if counters:
            self.write("counters", ranks=[*counters])
        failure = outcome.failure
        self.write(
            "end",
            exit_code=outcome.exit_code,
            message=outcome.message,
            interrupted_by=outcome.interrupted_by,
            failed=None if failure is None else {"rank": failure.rank, "host": failure.host, "how": failure.how()},
        )
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.deadline = None
        if self._file is not None:
            self._file.close()
            self._file = None


def _settings(job: Job) -> dict[str, str]:
    """The settings that all ranks have been given, without secrets."""
    inherited = environment.forwarded(os.environb, False, job.exclude_env) if job.forwards_env else {}
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in inherited.items()} | dict(job.env)
    return {
        name: shown(name, value)
        for name, value in sorted(given.items())
        if name.startswith(("CIRANDA_", "HOROVOD_")) or name in _READ_BY_OTHERS
    }


def _of_engine() -> dict[str, Any]:
    """The version, and the costs of memory and link that `ciranda tune` has measured here; empty if it has not."""
    try:
        from ciranda import _core  # the launcher runs without the engine, too
    except ImportError:
        return {}
    try:
        costs = _core.measured_costs()
    except ValueError:  # a broken file
        costs = None
    return {"version": _core.__version__, "costs": dict(costs or {})}
