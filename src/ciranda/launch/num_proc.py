"""The option for the number of ranks of a command: its names, and hints for names of other launchers."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

#: The number of all ranks.
NUM_PROC = ("-np", "--np", "-n", "--num-proc")
#: The number of ranks on each host, which on one machine is the number of all.
PER_HOST = ("--nproc-per-node", "--nproc_per_node")

HINT = f"the number of ranks is {NUM_PROC[0]} N, or {PER_HOST[0]} N on each host"

# -N, --nprocs, --ntasks, --num-processes, --world-size and the like.
_OTHER_NAME = re.compile(
    r"--?(N|n[-_]?(p|procs?|processes|ranks?|tasks?|workers?)"
    r"|num[-_]?(procs?|process(es)?|ranks?|tasks?|workers?|gpus?)|world[-_]?size|tasks[-_]per[-_]node)\Z"
)


def is_other_name(option: str) -> bool:
    """Whether it is another launcher's name of the number of ranks."""
    return option not in (*NUM_PROC, *PER_HOST) and _OTHER_NAME.match(option) is not None


def _breakable(name: str, seen: set[bool]) -> str:
    """The name with a space, where a line may end, behind another of its column."""
    is_long = name.startswith("--")
    if is_long in seen:
        return f" {name}"
    seen.add(is_long)
    return name


class CommandWithRanks(TyperCommand):
    """A command that tells who names the number of ranks as another launcher does what it is called here.

    Its help shows all names of an option in full, on several lines if need be.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, as the base class does."""
        names = {parameter: parameter.opts for parameter in self.get_params(ctx)}
        try:
            for parameter, opts in names.items():
                seen: set[bool] = set()  # lengths: long names have a column of their own
                parameter.opts = [_breakable(name, seen) for name in opts]
            super().format_help(ctx, formatter)
        finally:
            for parameter, opts in names.items():
                parameter.opts = opts

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`, as the base class does."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if not isinstance(option, str) or not is_other_name(option):
                raise
            raise typer.BadParameter(f"there is no option {option}: {HINT}", ctx=ctx) from None
