"""The gallery: every program of examples/, with what it says of itself, what it prints, and its source.

`PYTHONPATH=tools python -m website.gallery [PROGRAM...]` runs the programs that give a command of `ciranda run`, and
records what they print; one that fails, as without its framework, keeps its record. The site shows the record: to run
all of them would take it minutes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

#: A record begins with its command. NAME.txt is of the program whose page is NAME.
RECORDS = Path(__file__).with_name("outputs")

_LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp"}
_COMMAND = re.compile(r"^    (ciranda run .*)$", re.M)
_COMMENT = re.compile(r"^((?://[^\n]*\n)+|/\*.*?\*/)", re.S)


def programs(root: Path) -> list[Path]:
    """The programs, those of examples/ itself first."""
    found = [path for path in (root / "examples").rglob("*") if path.suffix in _LANGUAGES]
    return sorted(found, key=lambda path: (len(path.relative_to(root).parts), path))


def page(program: Path, root: Path) -> str:
    """Return the page of a program."""
    source = program.read_text(encoding="utf-8")
    name = program.relative_to(root / "examples").as_posix()
    language = _LANGUAGES[program.suffix]
    record = RECORDS / f"{flat(program, root)}.txt"
    prints = f"````{{code-block}} text\n{record.read_text(encoding='utf-8')}````\n\n" if record.exists() else ""
    return f"# {name}\n\n{_said(source, language)}\n\n{prints}````{{code-block}} {language}\n{source}````\n"


def flat(program: Path, root: Path) -> str:
    """Return the name of the page of a program."""
    return program.relative_to(root / "examples").as_posix().replace("/", "_")


def command(program: Path) -> str:
    """Return the first command that a program in Python gives; empty, if it gives none."""
    found = _COMMAND.search(ast.get_docstring(ast.parse(program.read_text(encoding="utf-8")), clean=False) or "")
    return found[1] if found else ""


def _said(source: str, language: str) -> str:
    """The first paragraph of what the program says of itself."""
    if language == "python":
        text = ast.get_docstring(ast.parse(source)) or ""
    else:
        found = _COMMENT.match(source)
        text = "\n".join(
            re.sub(r"^\s*(//|/\*|\*/|\*)\s?", "", line) for line in (found[0] if found else "").splitlines()
        )
    return text.strip().split("\n\n", 1)[0].removesuffix("*/").strip()


def record(program: Path, root: Path) -> bool:
    """Run a program by its command, and record what it prints; tell whether it succeeded."""
    line = command(program)
    done = subprocess.run(line.split(), cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        RECORDS.mkdir(exist_ok=True)
        (RECORDS / f"{flat(program, root)}.txt").write_text(f"$ {line}\n{done.stdout}", encoding="utf-8")
    return done.returncode == 0


def main() -> int:
    """Record the programs that are named, or all; the exit code."""
    root = Path(__file__).resolve().parents[2]
    named = [Path(name).resolve() for name in sys.argv[1:]]
    wanted = [each for each in named or programs(root) if each.suffix == ".py" and command(each)]
    failed = [each for each in wanted if not record(each, root)]
    for each in failed:
        print(f"website: {each.relative_to(root)} failed, and keeps its record")
    print(f"website: {len(wanted) - len(failed)} programs recorded")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
