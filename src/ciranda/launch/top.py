"""``ciranda top``: what the ranks of a job do now, from two looks at their counters."""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING

from ciranda.launch import in_flight
from ciranda.launch.errors import LaunchError
from ciranda.launch.rates import NO_RANKS, Counters, Row, rows
from ciranda.launch.screen_options import all_there

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

#: Asks for the counters.
Look = Callable[[], Counters]

# -- showing ----------------------------------------------------------------------------------------------------------

COLUMNS = (
    "rank",
    "host",
    "state",
    "steps/s",
    "calls/s",
    "GB/s",
    "waited",
    "waited for",
    "cpu",
    "memory",
    # Of these the live table has no room.
    "engine memory",
    "algorithm",
    "busiest link",
    "call in flight",
    "last warning",
)
_LIVE = COLUMNS.index("engine memory")
_FEW = 4  # ranks, of which the live table has the rest below
_NAMES = (1, 2)  # columns that are no numbers
_MOST_WARNINGS = 5  # below the live table
_LONG_CALL_SECONDS = 5.0
_TEXT_WIDTH = 80
_MOSTLY = 0.5  # of the time
MUCH = 0.1  # of the time: the rank that is waited for longest is marked if it is more
_RANKS_PER_SECOND = 14  # that are looked at

#: By the column: what rows are sorted by. Numbers come in falling order, but for the rank.
SORTS: dict[str, Callable[[Row], float]] = {
    "rank": lambda row: row.rank,
    "waited for": lambda row: -row.waited_for,
    "waited": lambda row: -row.waited,
    "steps/s": lambda row: -row.steps_per_second,
    "calls/s": lambda row: -row.calls_per_second,
    "GB/s": lambda row: -row.bytes_per_second,
    "cpu": lambda row: -row.cpu,
    "memory": lambda row: -row.memory_bytes,
}


@dataclass(frozen=True)
class View:
    """Which ranks are shown, None for all, and the column that they are sorted by, one of SORTS."""

    ranks: frozenset[int] | None = None
    sort: str = "rank"

    def of(self, found: Sequence[Row]) -> list[Row]:
        """These rows; ranks that are alike stay in the order of their numbers."""
        chosen = [row for row in found if self.ranks is None or row.rank in self.ranks]
        return sorted(chosen, key=SORTS[self.sort])

    def next(self) -> View:
        """The same ranks, by the next column."""
        names = [*SORTS]
        return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, by COLUMNS."""
    return (
        str(row.rank),
        row.host,
        _state(row),
        f"{row.steps_per_second:.1f}",
        f"{row.calls_per_second:,.0f}",
        f"{row.bytes_per_second / 1e9:.2f}",
        f"{row.waited:.0%}",
        f"{row.waited_for:.0%}",
        f"{row.cpu:.0%}",
        _mebibytes(row.memory_bytes),
        _mebibytes(row.engine_memory_bytes),
        row.algorithm,
        _link(row),
        in_flight.oldest(row.calls_in_flight, row.in_flight),
        row.warning,
    )


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 20):,.0f} MiB" if n_bytes else ""


def _link(row: Row) -> str:
    """``rank 2, 1.25 GB/s, 3 retries/s``."""
    if row.link < 0:
        return ""
    retries = f", {row.retries_per_second:,.0f} retries/s" if row.retries_per_second >= 1 else ""
    return f"rank {row.link}, {row.link_bytes_per_second / 1e9:.2f} GB/s{retries}"


def _state(row: Row) -> str:
    """Of one that runs, what it does: for others it waits, or the system says it."""
    if row.state != "runs" or not row.doing.is_known:
        return row.state
    return "waits" if row.waited >= _MOSTLY else row.doing.word


def to_text(found: Sequence[Row]) -> str:
    """A plain table."""
    lines = [COLUMNS, *map(cells, found)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def to_json(found: Sequence[Row]) -> str:
    """One object a rank, in an array."""
    return json.dumps([asdict(row) for row in found], indent=2)


class Screen:
    """What the live view draws: lines that are as wide as they are, each of one style.

    rich's own table measures and wraps each cell: of 64 ranks it took 30 ms, these lines take 2.
    """

    def __init__(self, lines: Sequence[tuple[str, str]]) -> None:
        self.lines = lines  # with their styles

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style in self.lines:
            yield Segment(text[: options.max_width], console.get_style(style) if style else None)
            yield Segment.line()


def screen_of(found: Sequence[Row], title: str, view: View) -> Screen:
    """The table, and the last warnings of some ranks below: in a column they would leave no room."""
    shown = view.of(found)
    worst = max((row.waited_for for row in found), default=0.0)
    head, *texts = _aligned([row[:_LIVE] for row in (COLUMNS, *map(cells, shown))])
    below = [f"rank {row.rank}: {details}" for row in shown if len(shown) <= _FEW and (details := _details(row))]
    if len(shown) > _FEW:
        calls = ((row, in_flight.oldest(row.calls_in_flight, row.in_flight, _LONG_CALL_SECONDS)) for row in shown)
        below += [f"rank {row.rank}: call in flight {call}" for row, call in calls if call][:_MOST_WARNINGS]
    below += [f"rank {row.rank}: {row.warning}" for row in shown if row.warning][:_MOST_WARNINGS]
    return Screen(
        [
            (title, "italic"),
            (head, "bold"),
            *(
                (text, "bold red" if row.waited_for == worst > MUCH else "")
                for text, row in zip(texts, shown, strict=True)
            ),
            (f"q: leave   s: sort, now by {view.sort}", "dim"),
            *((line, "bold red") for text in _reasons(found) for line in wrap(text, _TEXT_WIDTH)),
            *((line, "") for text in below for line in wrap(text, _TEXT_WIDTH)),
        ]
    )


def _details(row: Row) -> str:
    named = zip(COLUMNS[_LIVE:-1], cells(row)[_LIVE:-1], strict=True)
    return "; ".join(f"{name} {cell}" for name, cell in named if cell)


def _reasons(found: Sequence[Row]) -> Iterator[str]:
    """What the rank did for which the others wait most, if they wait for long."""
    worst = max(found, key=lambda row: row.waited_for, default=None)
    if worst is not None and worst.waited_for > MUCH and worst.doing.is_known:
        yield f"rank {worst.rank}, for which others wait: {worst.doing}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = " ".join(f"{{:{'<' if i in _NAMES else '>'}{width}}}" for i, width in enumerate(widths))
    return [form.format(*row) for row in rows]


def seconds_for(n_ranks: int) -> float:
    """The time between two looks at so many ranks, where none is asked for: it bounds what looking costs."""
    return max(1.0, n_ranks / _RANKS_PER_SECOND)


def once(look: Look, seconds: float, as_json: bool, view: View) -> str:
    """What the ranks do in so many seconds from now."""
    before = look()
    all_there(view.ranks, before)
    time.sleep(seconds)
    found = rows(before, look())
    if as_json:
        return to_json(view.of(found))
    return "\n".join([to_text(view.of(found)), *_reasons(found)])


def live(look: Look, seconds: float | None, title: str, view: View) -> None:
    """Show it until ``q`` is pressed, or the job ends; ``s`` sorts by another column, at once.

    ``seconds``: between two looks; None for as few as the number of ranks allows.
    """
    from rich.console import Console
    from rich.live import Live

    before = look()
    all_there(view.ranks, before)
    with _keys() as pressed, Live(console=Console(), screen=True, auto_refresh=False) as screen:
        found = rows(NO_RANKS, before)  # of its whole life, until there are two looks
        while True:
            deadline = time.monotonic() + (seconds or seconds_for(len(before)))
            screen.update(screen_of(found, title, view), refresh=True)
            while key := pressed(deadline):
                if key == "q":
                    return
                view = view.next()
                screen.update(screen_of(found, title, view), refresh=True)
            try:
                after = look()
            except LaunchError:  # it has ended
                break
            found, before = rows(before, after), after
    print(to_text(view.of(found)))
    print("the job has ended")


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield what waits for one of the keys until a time, and says which, or nothing. They are read without Return.

    The end of the input is a ``q``.
    """
    fd = sys.stdin.fileno()
    kept = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    typed: list[str] = []

    def pressed(deadline: float) -> str:
        while not typed and (left := deadline - time.monotonic()) > 0:
            if select.select([fd], [], [], left)[0]:
                read = os.read(fd, 64).decode("ascii", "replace") or "q"
                typed.extend(key for key in read if key in "qs")
        return typed.pop(0) if typed else ""

    try:
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, kept)
