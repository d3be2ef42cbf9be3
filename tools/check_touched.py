"""Check what CONTRIBUTING.md says of how many files a change touches, by counting those of one such change.

Each row of its table names an example: a collective, an element type, ... whose identifiers are TRACED here. The number
in the table must be that of the files in which they occur: under cpp/, bindings aside; or in the Python package, apart
from the stubs that tools/make_stubs.py writes. So that it stays small, no file may switch over collectives: what one
does is in the tables. `python tools/check_touched.py [ROOT]` prints the files of
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
#: The same for files of the Python package.
TRACED_IN_PACKAGE: dict[str, re.Pattern[str]] = {
    "a collective in the package": re.compile(r'\b(SCAN|Scans|(grouped_)?scan_async|grouped_scan)\b|"scan"'),
}
_ROW = re.compile(r"^\| (?P<change>[a-z ]+) \| (?P<number>\d+)", re.MULTILINE)
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


def offences(contributing: str, texts: dict[Path, str], package: dict[Path, str]) -> Iterator[str]:
    """Yield what is wrong, and print the files of each example."""
    claimed = {row["change"]: int(row["number"]) for row in _ROW.finditer(contributing)}
    examples = [(*each, texts) for each in TRACED.items()] + [(*each, package) for each in TRACED_IN_PACKAGE.items()]
    for change, identifiers, searched in examples:
        files = [str(path) for path, text in searched.items() if identifiers.search(text)]
        print(f"{change}: {len(files)} files: {', '.join(files)}")
        if claimed.get(change) != len(files):
            yield f"CONTRIBUTING.md says {claimed.get(change)} of {change}, but it is {len(files)}"
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
