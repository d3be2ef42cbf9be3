"""``ciranda merge``: the command's options."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from ciranda.launch.errors import LaunchError
from ciranda.launch.merging import merge as merge_traces


def merge(
    timeline: Annotated[
        Path, typer.Argument(metavar="TIMELINE", help="What 'ciranda run --timeline' has written.", show_default=False)
    ],
    profiles: Annotated[
        list[str], typer.Argument(metavar="RANK=TRACE...", help="Traces of torch's or JAX's profiler.",
                                  show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write; compressed if it ends with .gz.")
    ],
) -> None:  # fmt: skip
    """Put traces of torch's and JAX's profilers beside the timeline of all ranks, on its axis of time."""
    files: dict[int, Path] = {}
    for each in profiles:
        rank, is_given, path = each.partition("=")
        if not is_given or not re.fullmatch(r"\d{1,7}", rank, re.ASCII) or int(rank) in files:
            raise LaunchError(f"{each!r}: must be as 0=trace.json, once for a rank", exit_code=2)
        files[int(rank)] = Path(path)
    merge_traces(timeline, files, output)
    print(f"written to {output} (open it in https://ui.perfetto.dev)", file=sys.stderr)
