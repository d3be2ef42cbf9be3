"""A timeline of this process's collectives, in the format of Chrome's trace viewer (chrome://tracing, Perfetto).

The engine records and writes it (cpp/observe): it has the calls of all languages and threads of this process, and does
not change their path. Rank 0 records. The names are Horovod's.
"""

from __future__ import annotations

import os

from ciranda import _basics

__all__ = ["start_timeline", "stop_timeline"]


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Start to record the collectives of rank 0 in a file; other ranks record nothing.

    The file has all calls but those of the last hundredths of a second, and is complete after `stop_timeline()` or
    `shutdown()`. With `mark_cycles` it also marks each time at which the ranks agreed on entries to execute. While the
    same file is being recorded this does nothing.

    Raises:
        NotInitializedError: (a ValueError) before init().
        InvalidArgumentError: (a ValueError) a timeline is being recorded in another file, on every rank alike; or, on
            rank 0, the file cannot be written.
    """
    _basics.engine().start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """End the timeline and complete its file. Does nothing without one. Raises NotInitializedError before init()."""
    _basics.engine().stop_timeline()


def of_world(epoch: int) -> dict[str, str]:
    """Return the setting by which a later world of an elastic job has a timeline of its own, beside the first one's."""
    path = os.environ.get("CIRANDA_TIMELINE") or os.environ.get("HOROVOD_TIMELINE")
    if epoch == 0 or not path or path == "DYNAMIC":
        return {}
    stem, suffix = os.path.splitext(path)
    return {"CIRANDA_TIMELINE": f"{stem}.world-{epoch}{suffix}"}
