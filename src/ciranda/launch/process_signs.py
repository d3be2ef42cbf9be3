"""What the system says of a rank's process and its cgroup: why it may not compute. Standard library only.

The agent reads it, from /proc and the cgroup's files; no rank is asked. What a system does not tell is 0.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

_PROC = "/proc"
_CGROUPS = "/sys/fs/cgroup"
#: What a thread waits for, by the function of the kernel that it sleeps in.
_SLEEPS = (
    ("slept", re.compile("nanosleep")),
    ("thread", re.compile("futex")),
    ("input", re.compile("pipe|read|recv|poll|select|sk_wait|tcp|unix|inet|wait_for_more")),
)
# Fields of /proc/PID/stat behind the name, where the first is the state: when it began, and its waits for the disk.
_STARTED, _IN_DISK_WAIT = 19, 39


class Signs:
    """Of the processes of one host, look after look."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], Counter[str]] = {}  # by number and start: numbers come again

    def of(self, pid: int, is_waiting: bool) -> dict[str, Any]:
        """Totals of a process so far, each of which only grows; nothing if there is none.

        Args:
            pid: its number.
            is_waiting: whether it waits for other ranks now. Then what its main thread sleeps in says nothing.

        Returns:
            ``looks`` is how often it was looked at, ``stopped_looks`` how often a signal or a debugger had stopped it
            then, and ``slept_looks``, ``thread_looks`` and ``input_looks`` how often its main thread slept, waited for
            another thread, or for input. Of the main thread are also ``core_wait_seconds``, in which it was ready but
            had no core, ``disk_wait_seconds``, and how often it ``yielded`` and was ``preempted``. Of its cgroup:
            ``throttled_seconds``, and those of pressure on the disk and the memory.
        """
        stat = _read(f"{_PROC}/{pid}/stat").rpartition(")")[2].split()
        if not stat:
            return {}
        seen = self._seen.setdefault((pid, stat[_STARTED]), Counter())
        seen["looks"] += 1
        if stat[0] in "Tt":
            seen["stopped_looks"] += 1
        elif stat[0] == "S" and not is_waiting:
            seen[f"{_sleeps_for(pid)}_looks"] += 1
        status = _read(f"{_PROC}/{pid}/status")
        return {
            **{name: seen[name] for name in ("looks", "stopped_looks", "slept_looks", "thread_looks", "input_looks")},
            "core_wait_seconds": _number(r"\d+ (\d+)", _read(f"{_PROC}/{pid}/schedstat")) / 1e9,
            "disk_wait_seconds": int(stat[_IN_DISK_WAIT]) / os.sysconf("SC_CLK_TCK"),
            "yielded": _number(r"^voluntary_ctxt_switches:\s*(\d+)", status),
            "preempted": _number(r"^nonvoluntary_ctxt_switches:\s*(\d+)", status),
            **_of_cgroup(pid),
        }


def _sleeps_for(pid: int) -> str:
    kernels = _read(f"{_PROC}/{pid}/wchan")
    return next((what for what, pattern in _SLEEPS if pattern.search(kernels)), "other")


def _of_cgroup(pid: int) -> dict[str, float]:
    """Of version 2, or of version 1, which knows no pressure; then that of the host counts."""
    throttled = 0.0
    pressure = f"{_PROC}/pressure/%s"
    for line in _read(f"{_PROC}/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            throttled = _number(r"^throttled_time (\d+)", _read(f"{_CGROUPS}/cpu{path}/cpu.stat")) / 1e9
        elif not controllers and os.path.exists(own := f"{_CGROUPS}{path.rstrip('/')}/cpu.stat"):
            throttled = _number(r"^throttled_usec (\d+)", _read(own)) / 1e6
            if os.path.exists(f"{os.path.dirname(own)}/io.pressure"):
                pressure = os.path.dirname(own) + "/%s.pressure"
    kinds = {"disk": "io", "memory": "memory"}
    return {
        "throttled_seconds": throttled,
        **{f"{kind}_pressure_seconds": _number(r"^some .*total=(\d+)", _read(pressure % file)) / 1e6
           for kind, file in kinds.items()},
    }  # fmt: skip


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path: str) -> str:
    """Empty if there is no such file, or it may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
