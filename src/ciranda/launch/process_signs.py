"""What the system reports of a rank's process and its cgroup, to tell why it does not compute. Standard library only.

The agent reads it from /proc and the cgroup's files, without asking the rank. A value that the system lacks is 0.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

_PROC = "/proc"
_CGROUPS = "/sys/fs/cgroup"
#: What a thread waits for, and the functions of the kernel in which it then sleeps.
_SLEEPS = (
    ("slept", re.compile("nanosleep")),
    ("thread", re.compile("futex")),
    ("input", re.compile("pipe|read|recv|poll|select|sk_wait|tcp|unix|inet|wait_for_more")),
)
# Fields of /proc/PID/stat, counted from the one behind the name, which is the state: its time on a core (followed by
# that of the kernel), its start, its memory, and its waits for the disk.
_USER, _STARTED, _RESIDENT, _IN_DISK_WAIT = 11, 19, 21, 39
_PAGE_BYTES, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_FRESH_SECONDS = 0.2  # the files of a cgroup are read once for all ranks of a look
_STAYS_SECONDS = 5.0  # a process is rarely moved to another cgroup


class Signs:
    """Reads the signs of the processes of one host, and adds up what only single looks can show."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], Counter[str]] = {}  # by id and start: ids are reused
        self._cgroups = _Cgroups()

    def of(self, pid: int, is_waiting: bool) -> dict[str, Any]:
        """Return a process's totals, which only grow, with `use_of(pid)`; that alone if there is no such process.

        Args:
            pid: its id.
            is_waiting: whether it waits for other ranks now. Then it does not matter where its main thread sleeps.

        Returns:
            ``looks`` is how often it was looked at, ``stopped_looks`` how often a signal or a debugger had stopped it
            then, and ``slept_looks``, ``thread_looks`` and ``input_looks`` how often its main thread slept, waited for
            another thread, or for input. Of the main thread are also how often it ``yielded`` and was ``preempted``,
            and what `spent` says.
        """
        stat = _stat(pid)
        if not stat:
            return _use(stat)
        seen = self._seen.setdefault((pid, stat[_STARTED]), Counter())
        seen["looks"] += 1
        if stat[0] in "Tt":
            seen["stopped_looks"] += 1
        elif stat[0] == "S" and not is_waiting:
            seen[f"{_sleeps_for(pid)}_looks"] += 1
        status = _read(f"{_PROC}/{pid}/status")
        return {
            **self._spent(pid, stat),
            **{name: seen[name] for name in ("looks", "stopped_looks", "slept_looks", "thread_looks", "input_looks")},
            "yielded": _number("\nvoluntary_ctxt_switches:", status),
            "preempted": _number("\nnonvoluntary_ctxt_switches:", status),
        }

    def spent(self, pid: int) -> dict[str, float]:
        """The totals of a process that need no look before; what `use_of` says alone if there is none.

        Of the main thread, ``core_wait_seconds``, in which it was ready but had no core, and ``disk_wait_seconds``. Of
        its cgroup, ``throttled_seconds``, and those of pressure on the disk and the memory.
        """
        return self._spent(pid, _stat(pid))

    def _spent(self, pid: int, stat: Sequence[str]) -> dict[str, float]:
        if not stat:
            return _use(stat)
        ran = _read(f"{_PROC}/{pid}/schedstat").split()
        return {
            **_use(stat),
            "core_wait_seconds": int(ran[1]) / 1e9 if len(ran) > 1 else 0.0,
            "disk_wait_seconds": int(stat[_IN_DISK_WAIT]) / _TICKS,
            **self._cgroups.of(pid),
        }


def start_of(pid: int) -> str:
    """When a process began, by which it differs from a later one of the same number; empty if it has ended."""
    stat = _stat(pid)
    return "" if not stat or stat[0] in "ZX" else stat[_STARTED]


def is_stopped(pid: int) -> bool:
    """Whether a signal, as SIGSTOP, has stopped a process. A debugger's stop is another."""
    return _stat(pid)[:1] == ["T"]


def use_of(pid: int) -> dict[str, float]:
    """Return a process's memory in bytes, and its seconds on a core; zeros if there is no such process."""
    return _use(_stat(pid))


def _stat(pid: int) -> list[str]:
    return _read(f"{_PROC}/{pid}/stat").rpartition(")")[2].split()


def _use(stat: Sequence[str]) -> dict[str, float]:
    if not stat:
        return {"memory_bytes": 0, "cpu_seconds": 0.0}
    return {
        "memory_bytes": int(stat[_RESIDENT]) * _PAGE_BYTES,
        "cpu_seconds": sum(map(int, stat[_USER : _USER + 2])) / _TICKS,
    }


def _sleeps_for(pid: int) -> str:
    kernels = _read(f"{_PROC}/{pid}/wchan")
    return next((what for what, pattern in _SLEEPS if pattern.search(kernels)), "other")


class _Cgroups:
    """The cgroups of one host's processes. The files of a cgroup are read once for all processes in it."""

    def __init__(self) -> None:
        self._of_pid: dict[int, tuple[float, str]] = {}  # when it was read, and the text of /proc/PID/cgroup
        self._values: dict[str, tuple[float, dict[str, float]]] = {}  # likewise, by that text

    def of(self, pid: int) -> dict[str, float]:
        now = time.monotonic()
        read_at, text = self._of_pid.get(pid, (-_STAYS_SECONDS, ""))
        if now - read_at >= _STAYS_SECONDS:
            text = _read(f"{_PROC}/{pid}/cgroup")
            self._of_pid[pid] = now, text
        read_at, values = self._values.get(text, (-_FRESH_SECONDS, {}))
        if now - read_at >= _FRESH_SECONDS:
            values = _of_cgroup(text)
            self._values[text] = now, values
        return values


def _of_cgroup(text: str) -> dict[str, float]:
    """Return the counters of a cgroup of version 2 or 1. Version 1 has no pressure: that of the host counts instead."""
    throttled = 0.0
    pressure = f"{_PROC}/pressure/%s"
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            throttled = _number("\nthrottled_time ", _read(f"{_CGROUPS}/cpu{path}/cpu.stat")) / 1e9
        elif not controllers and os.path.exists(own := f"{_CGROUPS}{path.rstrip('/')}/cpu.stat"):
            throttled = _number("\nthrottled_usec ", _read(own)) / 1e6
            if os.path.exists(f"{os.path.dirname(own)}/io.pressure"):
                pressure = os.path.dirname(own) + "/%s.pressure"
    kinds = {"disk": "io", "memory": "memory"}
    return {
        "throttled_seconds": throttled,
        **{f"{kind}_pressure_seconds": _number(" total=", _read(pressure % file)) / 1e6
           for kind, file in kinds.items()},
    }  # fmt: skip


def _number(before: str, text: str) -> int:
    """Return the number behind the first occurrence of `before`; 0 if there is none."""
    rest = text.partition(before)[2].split(maxsplit=1)
    return int(rest[0]) if rest else 0


def _read(path: str) -> str:
    """Return the beginning of a file; "" if it cannot be read. Faster than open()."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 1 << 14).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
