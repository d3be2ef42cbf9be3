"""`ciranda top` in a notebook: a table that updates, without a widget."""

from __future__ import annotations

import html
import threading
from collections.abc import Sequence
from typing import Any

from ciranda._frameworks import require
from ciranda.launch import control, top
from ciranda.launch.errors import LaunchError
from ciranda.launch.rates import NO_RANKS, Counters, Row, by_rank, rows

_LEFT = ("host", "state", "last warning")  # columns that are no numbers
_CELL = '<{tag} style="text-align:{align}">{text}</{tag}>'


class Table:
    """The table at one time, as HTML and as text."""

    def __init__(self, found: Sequence[Row], title: str, view: top.View) -> None:
        self._found = found
        self._shown = view.of(found)
        self._title = title

    def __repr__(self) -> str:
        return f"{self._title}\n{top.to_text(self._shown)}"

    def _repr_html_(self) -> str:
        worst = max((row.waited_for for row in self._found), default=0.0)
        head = _line("th", top.COLUMNS, "")
        body = "".join(
            _line("td", top.cells(row), "color:red;font-weight:bold" if row.waited_for == worst > top.MUCH else "")
            for row in self._shown
        )
        return f"<table><caption>{html.escape(self._title)}</caption>{head}{body}</table>"


def _line(tag: str, texts: Sequence[str], style: str) -> str:
    cells = zip(top.COLUMNS, texts, strict=True)
    return f'<tr style="{style}">' + "".join(
        _CELL.format(tag=tag, align="left" if name in _LEFT else "right", text=html.escape(text))
        for name, text in cells
    ) + "</tr>"  # fmt: skip


class Shown:
    """A table that is being updated.

    Attributes:
        n_updates: how often it was.
    """

    def __init__(self, job: str | None, interval: float | None, view: top.View) -> None:
        import IPython.display  # only in a notebook

        display: Any = IPython.display.display
        self.n_updates = 0
        self._job = job
        self._interval = interval
        self._view = view
        self._is_stopped = threading.Event()
        self._before = self._look()
        self._table = self._of(rows(NO_RANKS, self._before), "")
        self._handle: Any = display(self._table, display_id=True)
        self._thread = threading.Thread(target=self._update, name="ciranda-top", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the updates. The table stays as it is."""
        self._is_stopped.set()
        self._thread.join()

    def _look(self) -> Counters:
        return by_rank(control.ask(self._job, "totals"))

    def _of(self, found: Sequence[Row], more: str) -> Table:
        return Table(found, f"ciranda job {self._job or ''}".rstrip() + more, self._view)

    def _update(self) -> None:
        found: list[Row] = rows(NO_RANKS, self._before)
        while not self._is_stopped.wait(self._interval or top.seconds_for(len(self._before))):
            try:
                after = self._look()
            except LaunchError:
                self._handle.update(self._of(found, ": has ended"))
                return
            found, self._before = rows(self._before, after), after
            self._handle.update(self._of(found, ""))
            self.n_updates += 1


def show_top(
    job: str | None = None, interval: float | None = None, ranks: Sequence[int] | None = None, sort: str = "rank"
) -> Shown:
    """Show in a notebook what `ciranda top` shows of a job, in a table that updates until the job ends.

    The cell does not wait, so that the ranks of a `Pool` can work in the next ones. It needs no widgets.

    Args:
        job: the beginning of its identifier; None for the only one of yours on this machine.
        interval: seconds between two looks; None for 1, and longer for more than 16 ranks.
        ranks: those to show; None for all.
        sort: the column to sort by, as of `ciranda top --sort`.

    Returns:
        The shown table. Its `stop()` ends the updates.

    Raises:
        ImportError: there is no IPython.
        LaunchError: there is no such job, or more than one; or no such column.
    """
    require("IPython", "ciranda.launch.show_top()")
    if sort not in top.SORTS:
        raise LaunchError(f"sort={sort!r}: must be one of {', '.join(top.SORTS)}", exit_code=2)
    return Shown(job, interval, top.View(None if ranks is None else frozenset(ranks), sort))
