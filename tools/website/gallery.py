"""The gallery: every program of examples/, with what it says of itself, what it prints, and its source.

`PYTHONPATH=tools python -m website.gallery [PROGRAM...]` runs the programs by the commands that they give, and records
what they print; one that fails, as without its framework, keeps its record. Those in C and C++ are compiled first. The
site shows the record: to run all of them would take it minutes.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

#: A record begins with its command. NAME.txt is of the program whose page is NAME.
RECORDS = Path(__file__).with_name("outputs")

_LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp"}
#: With what it sets in the environment, and without the brackets around what may be left out.
_COMMAND = re.compile(r"((?:[A-Z_]+=\w+ )*(?:ciranda run|horovodrun|python) [^\n`\[]*?)[. ]*(?:[`\[\n]|$)")
#: Stands in a command for a folder of the reader's.
_FOLDER = "DIR"
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
    """Return the first command that a program gives; empty, if it gives none."""
    found = _COMMAND.search(_heading(program.read_text(encoding="utf-8"), _LANGUAGES[program.suffix]))
    return found[1] if found else ""


def _heading(source: str, language: str) -> str:
    """What the program says of itself."""
    if language == "python":
        return ast.get_docstring(ast.parse(source)) or ""
    found = _COMMENT.match(source)
    lines = (found[0] if found else "").splitlines()
    return "\n".join(re.sub(r"^\s*(//|/\*|\*/|\*)\s?", "", line) for line in lines)


def _said(source: str, language: str) -> str:
    """The first paragraph of that."""
    return _heading(source, language).strip().split("\n\n", 1)[0].removesuffix("*/").strip()


def record(program: Path, root: Path) -> bool:
    """Run a program by its command, and record what it prints; tell whether it succeeded."""
    line = command(program)
    words = shlex.split(line)
    settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    with tempfile.TemporaryDirectory() as folder:
        made = str(Path(folder) / "made")
        done = subprocess.run(
            [made if word == _FOLDER else word for word in words[len(settings) :]],
            cwd=root if program.suffix == ".py" else compiled(root),
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        printed = done.stdout.replace(made, _FOLDER)
    if done.returncode == 0 and printed:
        RECORDS.mkdir(exist_ok=True)
        (RECORDS / f"{flat(program, root)}.txt").write_text(f"$ {line}\n{printed}", encoding="utf-8")
    return done.returncode == 0


def compiled(root: Path) -> Path:
    """Compile the programs in C and C++ against the installed package; return the folder that they are in."""
    folder = root / "build" / "examples"
    package = importlib.util.find_spec("ciranda")
    assert package is not None
    assert package.origin is not None
    for line in (
        ["cmake", "-S", "examples", "-B", str(folder), f"-DCMAKE_PREFIX_PATH={Path(package.origin).parent}"],
        ["cmake", "--build", str(folder)],
    ):
        subprocess.run(line, cwd=root, stdout=subprocess.DEVNULL, check=True)
    return folder


def main() -> int:
    """Record the programs that are named, or all; the exit code."""
    root = Path(__file__).resolve().parents[2]
    named = [Path(name).resolve() for name in sys.argv[1:]]
    wanted = [each for each in named or programs(root) if command(each)]
    failed = [each for each in wanted if not record(each, root)]
    for each in failed:
        print(f"website: {each.relative_to(root)} failed, and keeps its record")
    print(f"website: {len(wanted) - len(failed)} programs recorded")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
