"""The system's limits of a process."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from ciranda.doctor.finding import Finding

_WANTED_FILES = 1024
_WANTED_PROCESSES = 1024


def open_files() -> Iterator[Finding]:
    """Each peer costs a rank some sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{_shown(soft)} (at most {_shown(hard)})"
    if _is_less(soft, _WANTED_FILES):
        yield Finding("open files", "warn", text, f"jobs of many ranks need more: ulimit -n {_WANTED_FILES}")
    else:
        yield Finding("open files", "ok", text)


def processes() -> Iterator[Finding]:
    """Ranks, their threads and their data loaders."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if _is_less(soft, _WANTED_PROCESSES):
        yield Finding("processes", "warn", f"{soft}", f"threads count too: ulimit -u {_WANTED_PROCESSES} or more")
    else:
        yield Finding("processes", "ok", _shown(soft))


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _is_less(limit: int, wanted: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < wanted
