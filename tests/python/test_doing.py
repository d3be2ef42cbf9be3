"""What is said of a rank that others wait for: why it was slow, from what the system tells of its process."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ciranda.launch import process_signs
from ciranda.launch.doing import Doing, between
from ciranda.launch.process_signs import Signs

NONE = {
    "cpu_seconds": 0.0, "looks": 1, "stopped_looks": 0, "slept_looks": 0, "thread_looks": 0, "input_looks": 0,
    "core_wait_seconds": 0.0, "disk_wait_seconds": 0.0, "yielded": 0, "preempted": 0, "throttled_seconds": 0.0,
    "disk_pressure_seconds": 0.0, "memory_pressure_seconds": 0.0,
}  # fmt: skip


def doing(**more: float) -> Doing:
    return between(NONE, {**NONE, "looks": 5, **more}, 10.0)


@pytest.mark.parametrize(
    ("more", "word", "said"),
    [
        ({"cpu_seconds": 9.5}, "computes", "computed (kept 95% of a core busy)"),
        (
            {"stopped_looks": 2},
            "stopped",
            "was stopped by a signal or a debugger 50% of the time (kept 0% of a core busy)",
        ),
        (
            {"throttled_seconds": 6.0, "core_wait_seconds": 6.0, "cpu_seconds": 4.0},
            "throttled",
            "was throttled by its cgroup's limit 60% of the time (kept 40% of a core busy)",
        ),
        (
            {"core_wait_seconds": 5.0, "preempted": 1200, "cpu_seconds": 4.5},
            "no core",
            "waited for a core 50% of the time (kept 45% of a core busy; others took its core 120 times a second)",
        ),
        (
            {"core_wait_seconds": 1.5, "cpu_seconds": 8.2},
            "computes",
            "waited for a core 15% of the time, computed (kept 82% of a core busy)",
        ),
        (
            {"disk_pressure_seconds": 4.0, "cpu_seconds": 2.0},
            "disk",
            "waited for the disk 40% of the time (kept 20% of a",
        ),
        ({"disk_pressure_seconds": 4.0, "cpu_seconds": 9.0}, "computes", "computed (kept 90% of a core busy)"),
        (
            {"core_wait_seconds": 1.5, "slept_looks": 2},
            "sleeps",
            "slept 85% of the time, waited for a core 15% of the time (kept 0% of",
        ),
        (
            {"core_wait_seconds": 1.5, "waited_seconds": 8.0},
            "no core",
            "waited for a core 15% of the time (kept 0% of a",
        ),
        ({"slept_looks": 3, "input_looks": 1}, "sleeps", "slept 100% of the time (kept 0% of a core busy)"),
        ({"input_looks": 3}, "input", "waited for input 100% of the time (kept 0% of a core busy)"),
        ({"thread_looks": 3}, "blocked", "waited for another of its threads 100% of the time (kept 0% of a core busy)"),
        ({}, "idle", "waited for something else, or slept 100% of the time (kept 0% of a core busy)"),
    ],
)
def test_what_a_rank_did(more: dict[str, float], word: str, said: str) -> None:
    found = doing(**more)
    assert found.word == word
    assert str(found).startswith(said)


def test_one_look_tells_nothing() -> None:
    assert not between({}, NONE, 10.0).is_known
    assert not between(NONE, {"cpu_seconds": 3.0}, 10.0).is_known, "it has ended"


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.kill()


def until(signs: Signs, pid: int, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not condition(found := signs.of(pid, is_waiting=False)):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_the_signs_of_processes() -> None:
    signs = Signs()
    with process("sleep", "1000") as sleeper:
        found = until(signs, sleeper.pid, lambda found: found["slept_looks"] > 0)
        sleeper.send_signal(signal.SIGSTOP)
        stopped = until(signs, sleeper.pid, lambda found: found["stopped_looks"] > 0)
        assert stopped["slept_looks"] >= found["slept_looks"]
        assert stopped["looks"] > found["looks"]
    with process("cat") as reader:
        until(signs, reader.pid, lambda found: found["input_looks"] > 0)
        waits = signs.of(reader.pid, is_waiting=False)["input_looks"]
        assert signs.of(reader.pid, is_waiting=True)["input_looks"] == waits, "it waits for other ranks, not for input"
    with process("sh", "-c", "while :; do :; done") as busy:
        until(signs, busy.pid, lambda found: found["core_wait_seconds"] > 0)
        assert found["memory_bytes"] > 0
    assert signs.of(busy.pid, is_waiting=False) == {"memory_bytes": 0, "cpu_seconds": 0.0}


def test_the_signs_of_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both versions, whose files are as in the documentation of Linux."""
    for name in ("_PROC", "_CGROUPS"):
        monkeypatch.setattr(process_signs, name, str(tmp_path / name))

    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def found() -> list[float]:
        signs = Signs().of(7, is_waiting=False)
        return [signs[f"{name}_seconds"] for name in ("throttled", "disk_pressure", "memory_pressure")]

    put("_PROC/7/stat", f"7 (a b) S {' '.join(['0'] * 50)}")
    assert found() == [0, 0, 0], "no cgroups"
    put("_PROC/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\nfull avg10=0.00 total=1\n")
    put("_PROC/7/cgroup", "3:cpu,cpuacct:/job\n0::/\n")
    put("_CGROUPS/cpu,cpuacct/job/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 2500000000\n")
    (tmp_path / "_CGROUPS/cpu").symlink_to("cpu,cpuacct")
    assert found() == [2.5, 3, 0], "version 1 has no pressure of its own"
    put("_PROC/7/cgroup", "0::/job.slice\n")
    put("_CGROUPS/job.slice/cpu.stat", "usage_usec 9\nnr_throttled 2\nthrottled_usec 1500000\n")
    put("_CGROUPS/job.slice/io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n")
    put("_CGROUPS/job.slice/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n")
    assert found() == [1.5, 0.5, 0.25]
