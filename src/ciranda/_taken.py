"""The place of a rank in its world, which one process can have at a time.

A program that a rank starts inherits the variables that describe the rank's place. If it calls `init()`, it would wait
for ranks that never come, or, if every rank starts one, form a second world in silence. What stands between a launcher
and a rank (a shell, `numactl`, `env`, another launcher) inherits them as well and hands them on, rightly. So a process
that joins a world of several ranks says in its environment where it keeps its place: in a file in memory, which is gone
when it leaves the world or ends. Only a program that finds its own place kept there is refused.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ciranda._ways_to_meet import place_of
from ciranda.errors import NotSupportedError
from ciranda.launch.shared_file import SharedFile

#: Where the place is kept. Not a setting.
VARIABLE = "CIRANDA_TAKEN_BY"


class Taken:
    """This process's hold on the place that its environment describes."""

    _file: SharedFile | None = None

    def take(self, rank: int) -> None:
        """Keep the place, and tell programs that this process starts. Does nothing without a rendezvous."""
        self.release()
        if place := place_of(os.environ):
            self._file = SharedFile("ciranda-place")
            self._file.append(f"{rank} {place}".encode("utf-8", "surrogateescape"))
            os.environ[VARIABLE] = self._file.path

    def release(self) -> None:
        """Leave it to others."""
        if self._file is not None:
            self._file.close()
            self._file = None
            os.environ.pop(VARIABLE, None)


def require_free() -> None:
    """Raise NotSupportedError if the process that started this program, or one before it, has its place."""
    path = os.environ.get(VARIABLE, "")
    kept = ""
    with suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        kept = file.read()
    rank, _, place = kept.partition(" ")
    if not place or place != place_of(os.environ):
        return
    process = path.split("/")[2]
    raise NotSupportedError(
        f"init(): this program was started by rank {rank} (process {process}), which is in the world itself: both "
        "cannot be one rank. For a world of its own start it with 'ciranda run -np 1 COMMAND'. If it is to be the "
        f"rank, let that call shutdown() first, or start it without one variable: 'env -u {VARIABLE} COMMAND'"
    )
