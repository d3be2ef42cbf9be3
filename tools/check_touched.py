"""Check what CONTRIBUTING.md says of how many files a change touches, by counting those of one such change.

Each row of its table names an example: a collective, a transport, a device, ... whose identifiers are TRACED here. The
number in the table must be that of the files in which they occur, comments aside: under cpp/, but for bindings; of what
only tests have, also in the folder of tests that has it, but for the tests themselves; or in the Python package, but
for the stubs that tools/make_stubs.py writes. So that it stays small, no file may switch over collectives, nor over
types of memory: what differs is in tables. `python tools/check_touched.py [ROOT]` prints the files of each example and
what is wrong, and exits 1 if anything is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: By the first cell of a row: the identifiers of its example, and the folder of tests that has it.
TRACED: dict[str, tuple[re.Pattern[str], str | None]] = {
    "a collective": (re.compile(r"\b(kScan|CIRANDA_SCAN|scan_\w+|ScanOptions)\b"), None),
    "an element type": (re.compile(r"\b(kInt16|CIRANDA_INT16)\b"), None),
    "an algorithm": (re.compile(r"\b(kDirectDoubling|direct_allreduce_doubling)\b"), None),
    "a transport": (re.compile(r"\bLoopback\w+\b"), "tests/cpp/transport"),
    "a channel of jobs": (re.compile(r"\b(RecordChannel|n_sockets|kMostSockets)\b"), None),
    "a device": (re.compile(r"\b(Paged\w+|kPaged|paged_\w+)\b"), "tests/cpp/engine"),
}
#: The same for files of the Python package.
TRACED_IN_PACKAGE: dict[str, re.Pattern[str]] = {
    "a collective in the package": re.compile(r'\b(SCAN|Scans|(grouped_)?scan_async|grouped_scan)\b|"scan"'),
}
_ROW = re.compile(r"^\| (?P<change>[a-z ]+) \| (?P<number>\d+)", re.MULTILINE)
_COMMENT = re.compile(r"//.*")
_WRITTEN = "# Written by tools/"
_SWITCHES = {
    re.compile(r"\bcase Collective::k\w+"): "what differs between collectives belongs to their tables",
    re.compile(r"\bcase DeviceType::k\w+"): "what differs between types of memory belongs to their rows and devices",
}


def sources(folder: Path) -> dict[Path, str]:
    """Return the code of each source and header in `folder`, without comments; bindings and tests aside."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in {".hpp", ".cc", ".h"})
    counted = (
        path
        for path in found
        if "bindings" not in path.relative_to(folder).parts and not path.name.endswith("_test.cc")
    )
    return {path: _COMMENT.sub("", path.read_text(encoding="utf-8")) for path in counted}


def python_sources(package: Path) -> dict[Path, str]:
    """Return the text of each file of the Python package that a person writes."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py*")) if path.suffix != ".pyc"}
    return {path: text for path, text in texts.items() if not text.startswith(_WRITTEN)}


def offences(root: Path) -> Iterator[str]:
    """Yield what is wrong, and print the files of each example."""
    claimed = {
        row["change"]: int(row["number"]) for row in _ROW.finditer((root / "CONTRIBUTING.md").read_text("utf-8"))
    }
    engine = sources(root / "cpp")
    package = python_sources(root / "src" / "ciranda")
    examples = [
        (change, identifiers, engine | (sources(root / tests) if tests else {}))
        for change, (identifiers, tests) in TRACED.items()
    ] + [(change, identifiers, package) for change, identifiers in TRACED_IN_PACKAGE.items()]
    for change, identifiers, texts in examples:
        files = [str(path.relative_to(root)) for path, text in texts.items() if identifiers.search(text)]
        print(f"{change}: {len(files)} files: {', '.join(files)}")
        if claimed.get(change) != len(files):
            yield f"CONTRIBUTING.md says {claimed.get(change)} of {change}, but it is {len(files)}"
    for path, text in engine.items():
        for switch, why in _SWITCHES.items():
            if match := switch.search(text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}: {match[0]}: {why}"


def main(arguments: list[str]) -> int:
    """Check the repository at arguments[0] (default: the one of this file); return the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = list(offences(root))
    for offence in found:
        print(offence)
    print(f"check_touched: {len(found)} offences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
