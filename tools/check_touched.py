"""Check what CONTRIBUTING.md says of how many files a change touches, by counting those of one such change.

Each row of its table names an example: a collective, an element type, ... whose identifiers are TRACED here. The number
in the table must be that of the files under cpp/ (bindings aside) in which they occur. So that it stays small, no file
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
_ROW = re.compile(r"^\| (?P<change>[a-z ]+) \| (?P<number>\d+)", re.MULTILINE)
_SWITCH = re.compile(r"\bcase Collective::k\w+")


def sources(cpp: Path) -> dict[Path, str]:
    """Return the text of each source and header of the engine, by its path from `cpp`."""
    found = (path.relative_to(cpp) for path in sorted(cpp.rglob("*")) if path.suffix in {".hpp", ".cc", ".h"})
    return {path: (cpp / path).read_text(encoding="utf-8") for path in found if path.parts[0] != "bindings"}


def offences(contributing: str, texts: dict[Path, str]) -> Iterator[str]:
    """Yield what is wrong, and print the files of each example."""
    claimed = {row["change"]: int(row["number"]) for row in _ROW.finditer(contributing)}
    for change, identifiers in TRACED.items():
        files = [str(path) for path, text in texts.items() if identifiers.search(text)]
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
    found = list(offences((root / "CONTRIBUTING.md").read_text(encoding="utf-8"), sources(root / "cpp")))
    for offence in found:
        print(offence)
    print(f"check_touched: {len(found)} offences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
