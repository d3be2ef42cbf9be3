"""The log of a job that ``--output-dir`` keeps: what is in it, and when counters are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ciranda.launch import job_log
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Slot, assign, parse_hosts
from ciranda.launch.job import Job, Outcome
from ciranda.launch.job_log import JobLog


class Clock:
    """The time of the module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(job_log, "time", clock)
    return clock


def slots(n_ranks: int) -> list[Slot]:
    return assign(parse_hosts(f"hostA:{n_ranks}"), n_ranks)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "job.jsonl").read_text().splitlines()]


def n_looks(folder: Path, clock: Clock, n_ranks: int, seconds: float) -> int:
    """How often the counters of a job are looked at, by a launcher that comes by eight times a second."""
    log = JobLog(folder)
    log.write_job(Job(["x"], slots(n_ranks)))
    log.begin_looks()
    found = 0
    for _ in range(round(seconds * 8)):
        clock.now += 0.125
        if log.is_due():
            log.write_look([{"rank": 0}])
            found += 1
    log.close()
    return found


def test_looks_are_rarer_of_old_and_of_large_jobs(tmp_path: Path, clock: Clock) -> None:
    assert n_looks(tmp_path, clock, 2, 10) == pytest.approx(20, abs=4)
    hour, two = n_looks(tmp_path, clock, 2, 3600), n_looks(tmp_path, clock, 2, 7200)
    assert 100 < two - hour < 160, "200 ln 2"
    assert n_looks(tmp_path, clock, 512, 3600) < 180


def test_a_look_is_asked_for_once(tmp_path: Path, clock: Clock) -> None:
    log = JobLog(tmp_path)
    log.begin_looks()
    assert not log.is_due()
    clock.now += 1
    assert log.is_due()
    clock.now += 100
    assert not log.is_due(), "the agents have not answered"
    log.write_look([])
    assert log.deadline is not None
    log.write_end(Outcome(), [])
    log.write_look([])
    assert log.deadline is None, "it has ended"


def test_secrets_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_MY_TOKEN", "hush")
    monkeypatch.setenv("CIRANDA_NUM_LANES", "2")
    log = JobLog(tmp_path)
    log.write_job(Job(["x", "\udcff"], slots(2), env={"CIRANDA_NUM_LANES": "3", "OTHER": "1"}, secret="ab" * 32))
    log.close()
    (about,) = lines(tmp_path)
    assert about["settings"]["CIRANDA_MY_TOKEN"] == "(hidden)"
    assert about["settings"]["CIRANDA_NUM_LANES"] == "3"
    assert "OTHER" not in about["settings"]
    assert "ab" * 32 not in (tmp_path / "job.jsonl").read_text()
    assert (about["hosts"], about["command"]) == ({"hostA": [0, 1]}, ["x", "\udcff"])


def test_without_a_folder_nothing_is_kept() -> None:
    log = JobLog(None)
    log.write_job(Job(["x"], slots(1)))
    log.begin_looks()
    assert log.deadline is None
    log.write_end(Outcome(), [{"rank": 0}])


def test_a_full_disk_ends_the_log_only(tmp_path: Path) -> None:
    (tmp_path / "job.jsonl").symlink_to("/dev/full")
    log = JobLog(tmp_path)
    log.begin_looks()
    log.write("exit", rank=0)
    assert log.deadline is None
    log.write("exit", rank=0)


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "job.jsonl").mkdir()
    with pytest.raises(LaunchError, match=r"cannot write .*job\.jsonl: Is a directory"):
        JobLog(tmp_path)
