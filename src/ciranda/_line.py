"""This rank's line to the agent that has started it, under `ciranda run --elastic`: one JSON object a line.

To the agent:    `ready` (this process is in no world, and wants to be), `returned` (from training).
From the agent:  `roster` (the members of the next world), `lost` (no world comes of that roster any more), `invite`
                 (others want to join or are to leave; or no longer), `release` (all have returned), `dismiss` (this
                 process is to end: its place is not offered any more), `give_up` (too few ranks are left).

A process starts no thread for this: it reads where it waits for a roster, joins a world, or commits.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ciranda.errors import AbortedError, InvalidArgumentError

#: The file descriptor of this process's end. Not a setting.
VARIABLE = "CIRANDA_AGENT_FD"

_CHUNK_BYTES = 1 << 16
_GONE = "the agent that has started this rank is gone"


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
    """Owns this process's end of the socket, which programs that it starts do not inherit."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._rest = b""
        self._roster: Roster | None = None  # the last one, until it is taken
        self._lost_epoch = -1
        self.is_invited = False
        self.is_released = False
        self.given_up = ""  # why
        self.told_last: dict[str, str] = {}  # the settings of the rank that this process would be then

    def say(self, **word: Any) -> None:
        """Send a word to the agent."""
        rest = json.dumps(word).encode("ascii") + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            raise AbortedError(_GONE) from None

    def look(self) -> None:
        """Take what has come, without waiting."""
        while self._poll.poll(0):
            self._read()

    def is_lost(self, epoch: int) -> bool:
        """Whether no world can come of the roster with this epoch. Never raises."""
        try:
            self.look()
        except AbortedError:
            return True
        return self._lost_epoch >= epoch

    def wait(self) -> Roster | None:
        """Wait for the next roster; None if training has ended on all ranks, or is given up.

        Raises:
            SystemExit: this process is dismissed.
        """
        while self._roster is None and not self.is_released and not self.given_up:
            self._read()
        roster, self._roster = self._roster, None
        return None if self.is_released else roster

    def close(self) -> None:
        """Close this process's end."""
        os.close(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            raise AbortedError(_GONE)
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
            self.is_invited = bool(word["on"])
        elif word["t"] == "dismiss":
            raise SystemExit(0)
        elif word["t"] == "give_up":
            self.given_up, self.told_last = word["why"], word["told"]
        elif word["t"] == "release":
            self.is_released = True


@cache
def _line() -> Line | None:
    number = os.environ.get(VARIABLE)
    if number is None:
        return None
    if not _is_socket(int(number)):
        raise InvalidArgumentError(
            f"{VARIABLE}={number}: the program that has started this one has closed its socket to the agent. Under "
            "--elastic let 'ciranda run' start the training program itself, or through a shell"
        )
    del os.environ[VARIABLE]  # programs that this one starts are no ranks: they must not find it
    return Line(int(number))


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


_is_child = False


def line() -> Line | None:
    """This rank's line; None without `--elastic`, and in a process that a rank has forked."""
    return None if _is_child else _line()


def _forget_in_child() -> None:
    global _is_child
    _is_child = True
    os.environ.pop(VARIABLE, None)


os.register_at_fork(after_in_child=_forget_in_child)
