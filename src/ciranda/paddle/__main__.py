"""What is done with programs and operators from the command line.

`python -m ciranda.paddle build` compiles the operators, so that no job has to. `python -m ciranda.paddle draw MODEL [-o
FILE.svg]` shows the operators and the transfers of a program that Paddle has saved: as a picture, or as text.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ciranda.errors import CirandaError


def main(arguments: list[str]) -> int:
    """Run the command of the command line; return the exit status."""
    description = "What is done with programs and operators from the command line."
    parser = argparse.ArgumentParser(prog="python -m ciranda.paddle", description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="compile the operators for the Paddle that is installed")
    draw = commands.add_parser("draw", help="show what travels when in a saved program")
    draw.add_argument("model", help="as given to paddle.static.save()")
    draw.add_argument("-o", "--output", type=Path, help="write a picture (SVG) there, instead of text")
    options = parser.parse_args(arguments)
    if options.command == "build":
        return _build()
    return _draw(options.model, options.output)


def _build() -> int:
    from ciranda.paddle import _plugin  # --help takes no Paddle

    print(_plugin.describe())
    return 0


def _draw(model: str, output: Path | None) -> int:
    import ciranda.paddle  # noqa: F401 (before Paddle, which --help does not need)
    from ciranda.paddle import drawing  # as above

    try:
        rows = drawing.rows_of(drawing.saved_program(model))
    except CirandaError as error:
        print(error, file=sys.stderr)
        return 1
    if output is None:
        print(drawing.text(rows), end="")
    else:
        output.write_text(drawing.svg(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
