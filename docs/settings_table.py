"""Writes docs/guide/settings.md from the engine's own table of settings.

python docs/settings_table.py            write it
python docs/settings_table.py --check    exit code 1 if it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from ciranda import _core

PAGE = Path(__file__).parent / "guide" / "settings.md"

HEAD = """# Settings

<!-- Written by docs/settings_table.py from the table in cpp/base/config.cc: change it there, then run that. -->

A setting is an environment variable. `ciranda run` passes the variables of its own environment on to all ranks, on all
hosts; `--env NAME=VALUE` sets one for the ranks alone. Where it is not set, Horovod's variable for the same thing
is read. A value that does not parse or is out of its range ends `init()` with an error that names the variable and the
range. A name that is like a setting's and is none is told, by `ciranda run` or by `init()` on rank 0.

| variable | Horovod's name | default | range | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_line(row) for row in _core.settings())


def _line(row: _core.SettingRow) -> str:
    horovod = f"`{row['horovod_name']}`" if row["horovod_name"] else ""
    cells = (
        f"`{row['name']}`",
        horovod,
        _default(row["default"]),
        _range(row),
        row["meaning"].replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |\n"


def _default(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "`1`" if value else "`0`"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _range(row: _core.SettingRow) -> str:
    if isinstance(row["default"], bool):
        return "0, 1"
    if row["lowest"] is None or row["highest"] is None:
        return ""
    return f"{_number(row['lowest'])} to {_number(row['highest'])}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def main() -> int:
    """Write or check the page; the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{PAGE} is not up to date: run python docs/settings_table.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
