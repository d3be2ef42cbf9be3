"""This rank's line to the agent that has started it, under `ciranda run --elastic`: one JSON object a line.

To the agent:    `ready` (this process is in no world, and wants to be), `returned` (from training).
From the agent:  `roster` (the members of the next world), `lost` (no world comes of that roster any more), `invite`
                 (others want to join), `release` (all have returned).

A process starts no thread for this: it reads where it waits for a roster, joins a world, or commits.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ciranda.errors import AbortedError

#: The file descriptor of this process's end. Not a setting.
VARIABLE = "CIRANDA_AGENT_FD"

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Roster:
    """One world, as this rank is told of it.

    Attributes:
        epoch: what tells it from all others of the job.
        members: by rank, what identifies each process for as long as it lives.
        newcomers: the members that were not in the world before.
        commits: of rank 0, which no rank exceeds.
        needs_sync: whether the state must be synchronized.
        told: settings that make this process one of its ranks.
    """

    epoch: int
    members: list[tuple[int, int]]
    newcomers: list[tuple[int, int]]
    commits: int
    needs_sync: bool
    told: dict[str, str]

    @staticmethod
    def of(word: Mapping[str, Any]) -> Roster:
        """The content of a `roster` word."""
        members, newcomers = ([(slot, life) for slot, life in word[key]] for key in ("members", "newcomers"))
        return Roster(word["epoch"], members, newcomers, word["commits"], word["sync"], word["told"])


class Line:
    """Owns the socket."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._rest = b""
        self._roster: Roster | None = None  # the last one, until it is taken
        self._lost_epoch = -1
        self.is_invited = False
        self.is_released = False

    def say(self, **word: Any) -> None:
        """Send a word to the agent."""
        try:
            self._socket.sendall(json.dumps(word).encode("ascii") + b"\n")
        except OSError as error:
            raise AbortedError(f"the agent that has started this rank is gone ({error.strerror})") from None

    def look(self) -> None:
        """Take what has come, without waiting."""
        while select.select([self._socket], [], [], 0)[0]:
            self._read()

    def is_lost(self, epoch: int) -> bool:
        """Whether no world can come of the roster with this epoch. Never raises."""
        try:
            self.look()
        except AbortedError:
            return True
        return self._lost_epoch >= epoch

    def wait(self) -> Roster | None:
        """Wait for the next roster; None if training has ended on all ranks."""
        while self._roster is None and not self.is_released:
            self._read()
        roster, self._roster = self._roster, None
        return None if self.is_released else roster

    def close(self) -> None:
        """Close this process's end."""
        self._socket.close()

    def _read(self) -> None:
        data = self._socket.recv(_CHUNK_BYTES)
        if not data:
            raise AbortedError("the agent that has started this rank is gone")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, word: Mapping[str, Any]) -> None:
        if word["t"] == "roster":
            self._roster = Roster.of(word)
            self.is_invited = False
        elif word["t"] == "lost":
            self._lost_epoch = word["epoch"]
        elif word["t"] == "invite":
            self.is_invited = True
        elif word["t"] == "release":
            self.is_released = True


@cache
def _line() -> Line | None:
    # Programs that this one starts are no ranks: they must not find it.
    fd = os.environ.pop(VARIABLE, None)
    return None if fd is None else Line(int(fd))


_is_child = False


def line() -> Line | None:
    """This rank's line; None without `--elastic`, and in a process that a rank has forked."""
    return None if _is_child else _line()


def _forget_in_child() -> None:
    global _is_child
    _is_child = True
    os.environ.pop(VARIABLE, None)


os.register_at_fork(after_in_child=_forget_in_child)
