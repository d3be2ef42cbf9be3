"""`python -m ciranda.paddle build`: compile the operators, so that no job has to."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    if arguments != ["build"]:
        print("usage: python -m ciranda.paddle build", file=sys.stderr)
        return 2
    from ciranda.paddle import _plugin

    print(_plugin.describe())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
