"""The gallery: every program of examples/, with what it says of itself and its source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp"}
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
    return f"# {name}\n\n{_said(source, language)}\n\n````{{code-block}} {language}\n{source}````\n"


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
