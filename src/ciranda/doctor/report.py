"""The findings as a table for people, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ciranda.doctor.finding import Finding

_MARKS = {"ok": ("ok", "green"), "warn": ("warning", "yellow"), "fail": ("failed", "bold red")}


def to_json(findings: Sequence[Finding]) -> str:
    """``{"ok": true, "findings": [{"name", "status", "found", "advice"}]}``."""
    well = not any(finding.status == "fail" for finding in findings)
    return json.dumps({"ok": well, "findings": [asdict(finding) for finding in findings]}, indent=2)


def versions_to_text(versions: Mapping[str, str]) -> str:
    """A line for each, however long."""
    width = max(map(len, versions), default=0)
    return "\n".join(f"{name:<{width}}  {found}" for name, found in versions.items())


def show(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print the table, advice under what it is for, and one line that sums up."""
    console = console or Console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        word, style = _MARKS[finding.status]
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style="italic")
        table.add_row(Text(word, style=style), finding.name, text)
    console.print(table)
    console.print()
    n_failed = sum(finding.status == "fail" for finding in findings)
    n_warnings = sum(finding.status == "warn" for finding in findings)
    if n_failed:
        console.print(Text(f"{n_failed} of {len(findings)} checks failed: mend that first, jobs need it.", "red"))
    elif n_warnings:
        console.print(Text(f"Ready; {n_warnings} of {len(findings)} checks have advice."))
    else:
        console.print(Text("Ready; everything is as it should be.", "green"))
