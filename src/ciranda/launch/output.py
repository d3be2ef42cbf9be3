"""What the ranks write, as it appears on the screen: whole lines with their rank in front, progress bars that stay put.

Two pure parts: LineBuffer cuts one stream into lines, Screen turns lines of many streams into bytes for the launcher's
own stdout and stderr. On a terminal the unfinished line of the lowest rank that has one (a progress bar redrawn with
carriage returns) is kept live at the bottom, and other ranks' lines scroll above it. Elsewhere a line redrawn with
carriage returns is written once, as it last looked.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

MAX_PARTIAL_BYTES = 1 << 20
STDOUT, STDERR = 1, 2
FD_OF = {"stdout": STDOUT, "stderr": STDERR}
_COLOURS = (36, 32, 35, 33, 34, 96, 92, 95, 93, 94)
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_CLEAR_LINE = b"\r\x1b[K"


class LineBuffer:
    """Cuts one stream into lines. Holds at most MAX_PARTIAL_BYTES of an unfinished one."""

    def __init__(self) -> None:
        self._partial = b""

    @property
    def partial(self) -> bytes:
        """The unfinished line as a terminal would show it now."""
        return _shown(self._partial)

    @property
    def is_redrawn(self) -> bool:
        """Whether the unfinished line has been moved over with a carriage return."""
        return b"\r" in self._partial

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without line ends."""
        *complete, rest = (self._partial + data).split(b"\n")
        lines = [_shown(line) for line in complete]
        if len(rest) > MAX_PARTIAL_BYTES and len(_shown(rest)) > MAX_PARTIAL_BYTES:
            lines.append(_shown(rest))
            rest = b""
        self._partial = b"\r" + _shown(rest) + rest[len(rest.rstrip(b"\r")) :] if b"\r" in rest else rest
        return lines

    def finish(self) -> list[bytes]:
        """What is left at the end of the stream."""
        rest, self._partial = _shown(self._partial), b""
        return [rest] if rest else []


class RawBuffer:
    """Passes one stream on unchanged, in whole lines so that streams do not mix within a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What can go out now."""
        data = self._rest + data
        end = len(data) if len(data) > MAX_PARTIAL_BYTES else data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end]

    def finish(self) -> bytes:
        """What is left at the end of the stream."""
        rest, self._rest = self._rest, b""
        return rest


def _shown(line: bytes) -> bytes:
    """What is left of a line after its carriage returns: the last piece that holds anything."""
    pieces = [piece for piece in line.split(b"\r") if piece]
    return pieces[-1] if pieces else b""


@dataclass(frozen=True)
class ScreenStyle:
    """How to show output. ``columns`` 0: not a terminal. ``ranks``: whose output is shown; None: that of all."""

    prefix: bool = True
    timestamp: bool = False
    colour: bool = False
    columns: int = 0
    ranks: Collection[int] | None = None
    now: Callable[[], float] = field(default=time.time)


def terminal_style(prefix: bool = True, timestamp: bool = False, ranks: Collection[int] | None = None) -> ScreenStyle:
    """Live lines and colours only where a person looks on."""
    is_terminal = os.isatty(STDOUT) and os.isatty(STDERR) and os.environ.get("TERM") != "dumb"
    columns = os.get_terminal_size(STDERR).columns if is_terminal else 0
    colour = is_terminal and not os.environ.get("NO_COLOR")
    return ScreenStyle(prefix=prefix, timestamp=timestamp, colour=colour, columns=columns, ranks=ranks)


class Screen:
    """Turns pieces of the ranks' output into (fd, bytes) to write, in order. Pure but for ``style.now``."""

    def __init__(self, style: ScreenStyle) -> None:
        self._style = style
        self._buffers: dict[tuple[int, str], LineBuffer] = {}
        self._raw: dict[tuple[int, str], RawBuffer] = {}
        self._live = b""

    def feed(self, rank: int, stream: str, data: bytes) -> list[tuple[int, bytes]]:
        """Take what a rank wrote; what to write to the screen for it."""
        if self._style.ranks is not None and rank not in self._style.ranks:
            return []
        if not self._style.prefix and not self._style.columns:
            whole = self._raw.setdefault((rank, stream), RawBuffer()).feed(data)
            return [(FD_OF[stream], whole)] if whole else []
        buffer = self._buffers.setdefault((rank, stream), LineBuffer())
        return self._put([(rank, stream, line) for line in buffer.feed(data)])

    def finish(self, rank: int) -> list[tuple[int, bytes]]:
        """The rank writes no more: its unfinished lines become lines."""
        lines = []
        raw = [(fd, self._raw.pop((rank, stream), RawBuffer()).finish()) for stream, fd in FD_OF.items()]
        for stream in FD_OF:
            buffer = self._buffers.pop((rank, stream), None)
            lines += [(rank, stream, line) for line in buffer.finish()] if buffer else []
        return [write for write in raw if write[1]] + self._put(lines)

    def say(self, text: str) -> list[tuple[int, bytes]]:
        """A line of the launcher's own, on stderr."""
        return self._above_live([(STDERR, text.encode("utf-8", "surrogateescape") + b"\n")])

    def _put(self, lines: list[tuple[int, str, bytes]]) -> list[tuple[int, bytes]]:
        return self._above_live(
            [(FD_OF[stream], self._prefix(rank, stream) + line + b"\n") for rank, stream, line in lines]
        )

    def _above_live(self, writes: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """``writes`` with the live line taken away before and drawn again after, where that changes anything."""
        if not self._style.columns:
            return writes
        live = self._choose_live()
        if not writes and live == self._live:
            return []
        cleared = [(STDERR, _CLEAR_LINE)] if self._live else []
        drawn = [(STDERR, live)] if live else []
        self._live = live
        return cleared + writes + drawn

    def _choose_live(self) -> bytes:
        for (rank, stream), buffer in sorted(self._buffers.items()):
            if buffer.partial and (buffer.is_redrawn or rank == 0):
                return fit(self._prefix(rank, stream) + buffer.partial, self._style.columns - 1)
        return b""

    def _prefix(self, rank: int, stream: str) -> bytes:
        if not self._style.prefix:
            return b""
        text = f"[{rank}]<{stream}>:"
        if self._style.timestamp:
            now = self._style.now()
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            text = f"{clock}.{int(now * 1000) % 1000:03d} {text}"
        if self._style.colour:
            text = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m"
        return text.encode("ascii")


def fit(line: bytes, columns: int) -> bytes:
    """``line`` cut so that it takes at most ``columns`` cells of a terminal; escape sequences are kept."""
    text = line.decode("utf-8", "surrogateescape")
    kept = []
    position = used = 0
    while position < len(text):
        escape = _ESCAPE.match(text, position)
        if escape:
            kept.append(escape.group())
            position = escape.end()
            continue
        character = text[position]
        used += _cells(character)
        if used <= columns:
            kept.append(character)
        position += 1
    return "".join(kept).encode("utf-8", "surrogateescape")


def _cells(character: str) -> int:
    if unicodedata.combining(character) or ord(character) < 32:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
