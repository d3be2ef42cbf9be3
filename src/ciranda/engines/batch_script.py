"""The batch script of a job on Slurm, for `sbatch`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from ciranda.launch.errors import LaunchError

_SCRIPT = """#!/bin/bash
{options}

# A rank for each task, on all nodes. By exec, Slurm's signals to this script reach the ranks.
exec {command}
"""


@dataclass(frozen=True)
class Batch:
    """What the script is to ask for.

    Attributes:
        run: the words of 'ciranda run', or of a Python that has it.
        command: what each rank runs.
        options: of sbatch, by their long names; None leaves one out.
        more: further options of sbatch, as written on its command line.
    """

    run: Sequence[str]
    command: Sequence[str]
    options: dict[str, str | int | None] = field(default_factory=dict)
    more: Sequence[str] = ()


def script(batch: Batch) -> str:
    """Return the script.

    Raises:
        LaunchError: an option has several lines, or is none.
    """
    given = [f"--{name}={value}" for name, value in batch.options.items() if value is not None]
    for word in batch.more:
        if not word.startswith("-"):
            raise LaunchError(f"--sbatch {word!r}: write an option of sbatch, as --sbatch=--qos=high", exit_code=2)
    for word in [*given, *batch.more]:
        if "\n" in word or "\r" in word:
            raise LaunchError(f"{word!r}: an option of sbatch is one line", exit_code=2)
    lines = [f"#SBATCH {shlex.quote(word)}" for word in [*given, *batch.more]]
    return _SCRIPT.format(options="\n".join(lines), command=shlex.join([*batch.run, *batch.command]))
