"""Runs scripts one after the other in one process, each as the main program: what they import is loaded once.

`ciranda run -np 2 python in_turn.py [ARGUMENT...] SCRIPT...` gives all scripts the arguments, and ends with the code of
the first that fails, which is named. After each the process leaves the world: the next begins as it would alone.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import ciranda


def run(script: str, arguments: list[str]) -> object:
    """Run one script; return what it gives to sys.exit(), None if it does not call it."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as left:
        return left.code
    return None


def leave() -> None:
    """Leave the world, and torch.distributed's default group."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    ciranda.shutdown()


def main(given: list[str]) -> int:
    first = next(index for index, each in enumerate(given) if each.endswith(".py"))
    for script in given[first:]:
        sys.stdout.write(f"in_turn: {script} on rank {os.environ['CIRANDA_RANK']}\n")
        sys.stdout.flush()
        code = run(script, given[:first])
        if code:
            sys.stderr.write(f"in_turn: {script} ended with {code!r}\n")
            return 1
        leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
