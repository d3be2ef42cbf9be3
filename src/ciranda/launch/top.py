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
from typing import TYPE_CHECKING

from ciranda.launch.errors import LaunchError
from ciranda.launch.rates import NO_RANKS, Counters, Row, rows

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

#: Asks for the counters.
Look = Callable[[], Counters]

# -- showing ----------------------------------------------------------------------------------------------------------

_COLUMNS = (
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
    "last warning",
)
_LIVE = _COLUMNS.index("engine memory")
_FEW = 4  # ranks, of which the live table has the rest below
_MOST_WARNINGS = 5  # below the live table
_MOSTLY = 0.5  # of the time
_MUCH = 0.1

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


def _cells(row: Row) -> tuple[str, ...]:
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
    lines = [_COLUMNS, *map(_cells, found)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def to_json(found: Sequence[Row]) -> str:
    """One object a rank, in an array."""
    return json.dumps([asdict(row) for row in found], indent=2)


def screen_of(found: Sequence[Row], title: str, view: View) -> Group:
    """The table, and the last warnings of some ranks below: in a column they would leave no room."""
    from rich.console import Group
    from rich.text import Text

    warnings = [Text(f"rank {row.rank}: {row.warning}") for row in view.of(found) if row.warning]
    shown = view.of(found)
    details = [Text(f"rank {row.rank}: {_details(row)}") for row in shown if len(shown) <= _FEW and _details(row)]
    return Group(_table(found, title, view), *_reasons(found), *details, *warnings[:_MOST_WARNINGS])


def _details(row: Row) -> str:
    named = zip(_COLUMNS[_LIVE:-1], _cells(row)[_LIVE:-1], strict=True)
    return "; ".join(f"{name} {cell}" for name, cell in named if cell)


def _reasons(found: Sequence[Row]) -> Iterator[Text]:
    """What the rank did for which the others wait most, if they wait for long."""
    from rich.text import Text

    worst = max(found, key=lambda row: row.waited_for, default=None)
    if worst is not None and worst.waited_for > _MUCH and worst.doing.is_known:
        yield Text(f"rank {worst.rank}, for which others wait: {worst.doing}", style="bold red")


def _table(found: Sequence[Row], title: str, view: View) -> Table:
    from rich.table import Table
    from rich.text import Text

    caption = f"q: leave   s: sort, now by {view.sort}"
    # Without lines between columns it fits into 80 characters.
    table = Table(title=title, caption=caption, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for i, name in enumerate(_COLUMNS[:_LIVE]):
        table.add_column(name, justify="left" if i in (1, 2) else "right", no_wrap=True)
    worst = max((row.waited_for for row in found), default=0.0)
    for row in view.of(found):
        is_worst = row.waited_for == worst > _MUCH
        table.add_row(*map(Text, _cells(row)[:_LIVE]), style="bold red" if is_worst else "")
    return table


def once(look: Look, seconds: float, as_json: bool, view: View) -> str:
    """What the ranks do in so many seconds from now."""
    before = look()
    time.sleep(seconds)
    found = view.of(rows(before, look()))
    return to_json(found) if as_json else to_text(found)


def live(look: Look, seconds: float, title: str, view: View) -> None:
    """Show it until ``q`` is pressed, or the job ends; ``s`` sorts by another column, at once."""
    from rich.console import Console
    from rich.live import Live

    before = look()
    with _keys() as pressed, Live(console=Console(), screen=True, auto_refresh=False) as screen:
        found = rows(NO_RANKS, before)  # of its whole life, until there are two looks
        while True:
            deadline = time.monotonic() + seconds
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
