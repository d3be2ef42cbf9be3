"""Check what CONTRIBUTING.md says of how many files a change touches, by counting those of one such change.

Each row of its table names an example: a collective, an element type, ... whose identifiers are TRACED here. The number
in the table must be that of the files under cpp/ (bindings aside) in which they occur; for a collective also that of
the files of the Python package, apart from the stubs that tools/make_stubs.py writes. So that it stays small, no file
may switch over collectives: what one does is in the tables. `python tools/check_touched.py [ROOT]` prints the files of
each example and what is wrong, and exits 1 if anything is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: By the first cell of a row: the identifiers of its example.
TRACED: dict[str, re.Pattern[str]] = {
    "a collective": re.compile(r"\b(kScan|CIRANDA_SCAN|scan_\w+|ScanOptions)\b"),
    "an element type": re.compile(r"\b(kInt16|CIRANDA_INT16)\b"),
    "an algorithm": re.compile(r"\b(kDirectDoubling|direct_allreduce_doubling)\b"),
}
#: The same in Python, for "a collective".
TRACED_IN_PYTHON = re.compile(r'\b(SCAN|Scans|(grouped_)?scan_async|grouped_scan)\b|"scan"')
_ROW = re.compile(
    r"^\| (?P<change>[a-z ]+) \| (?P<number>\d+)(?:.*[Aa]nd (?P<python>\d+) in `src/ciranda`)?", re.MULTILINE
)
_WRITTEN = "# Written by tools/"
_SWITCH = re.compile(r"\bcase Collective::k\w+")


def sources(cpp: Path) -> dict[Path, str]:
    """Return the text of each source and header of the engine, by its path from `cpp`."""
    found = (path.relative_to(cpp) for path in sorted(cpp.rglob("*")) if path.suffix in {".hpp", ".cc", ".h"})
    return {path: (cpp / path).read_text(encoding="utf-8") for path in found if path.parts[0] != "bindings"}


def python_sources(package: Path) -> dict[Path, str]:
    """Return the text of each file of the Python package that a person writes, by its path from `package`."""
    texts = {path.relative_to(package): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py*"))}
    return {path: text for path, text in texts.items() if not text.startswith(_WRITTEN)}


def miscount(change: str, claimed: str | None, texts: dict[Path, str], traced: re.Pattern[str]) -> Iterator[str]:
    """Print the files in which an example occurs, and yield what is wrong if their number is not the one claimed."""
    files = [str(path) for path, text in texts.items() if traced.search(text)]
    print(f"{change}: {len(files)} files: {', '.join(files)}")
    if claimed is None or int(claimed) != len(files):
        yield f"CONTRIBUTING.md says {claimed} of {change}, but it is {len(files)}"


def offences(contributing: str, texts: dict[Path, str], of_python: dict[Path, str]) -> Iterator[str]:
    """Yield what is wrong, and print the files of each example."""
    rows = {row["change"]: row for row in _ROW.finditer(contributing)}
    for change, identifiers in TRACED.items():
        yield from miscount(change, rows[change]["number"] if change in rows else None, texts, identifiers)
    in_python = rows["a collective"]["python"] if "a collective" in rows else None
    yield from miscount("a collective in Python", in_python, of_python, TRACED_IN_PYTHON)
    for path, text in texts.items():
        if match := _SWITCH.search(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"cpp/{path}:{line}: {match[0]}: what differs between collectives belongs to their tables"


def main(arguments: list[str]) -> int:
    """Check the repository at arguments[0] (default: the one of this file); return the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = list(offences(contributing, sources(root / "cpp"), python_sources(root / "src" / "ciranda")))
    for offence in found:
        print(offence)
    print(f"check_touched: {len(found)} offences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
