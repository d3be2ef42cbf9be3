"""``ciranda report``: the command's options."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ciranda.launch.errors import LaunchError

_STDOUT = Path("-")


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What 'ciranda run --output-dir DIR' has written.", show_default=False)
    ],
    other: Annotated[
        Path | None, typer.Argument(metavar="DIR2", help="Another job to compare with.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The page to write.",
                                  show_default="DIR/report.html, or none with --json")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the same facts as JSON; - prints them.")
    ] = None,
) -> None:  # fmt: skip
    """Write a page on what a job did: where its steps went, who was waited for, what to try. Or compare two jobs.

    The page is one file, for any browser, without network.
    """
    from ciranda import report as reports  # with NumPy, which other commands do without

    found = reports.facts_of(reports.read(directory))
    if other is not None:
        found = reports.comparison_of(found, reports.facts_of(reports.read(other)))
    if as_json is not None:
        _write(as_json, json.dumps(found, indent=2))
    if output is None and as_json is not None:
        return
    path = output or directory / "report.html"
    _write(path, reports.page_of(found) if other is None else reports.comparison_page(found))
    if path != _STDOUT:
        print(f"written to {path}", file=sys.stderr)


def _write(path: Path, content: str) -> None:
    if path == _STDOUT:
        print(content)
        return
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}", exit_code=2) from None
