"""Check that lines of prose in the repository's Markdown end at 120 characters, as those of its code do.

Headings, tables, code blocks and HTML comments are exempt, as are lines that cannot be broken because they consist of
one word: a link, an image or inline code, behind the marker of a list or of a quotation. `python tools/check_prose.py
[ROOT]` prints each line that is too long and exits 1 if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 120

_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})")
_EXEMPT = re.compile(r"\s*(#{1,6} |\||<!--.*-->$)")
_MARKER = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s+)?")
_ONE_WORD = re.compile(r"`+[^`]*`+|!?\[[^\]]*\]\([^)]*\)")


def pages(root: Path) -> list[Path]:
    """Return the Markdown files under `root` that git does not ignore; outside a repository, those not hidden."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return sorted(page for name in listed.stdout.splitlines() if (page := root / name).exists())
    return sorted(page for page in root.rglob("*.md") if not page.relative_to(root).parts[0].startswith("."))


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is neither in a code block nor exempt as a whole."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        opened = _FENCE.match(line)
        if fence:
            if opened and opened["fence"].startswith(fence):
                fence = ""
        elif opened:
            fence = opened["fence"]
        elif not _EXEMPT.match(line):
            yield number, line


def can_be_broken(line: str) -> bool:
    """Return whether the line has more than one word; a link, an image and inline code are one each."""
    return len(_ONE_WORD.sub("x", _MARKER.sub("", line, count=1)).split()) > 1


def main(arguments: list[str]) -> int:
    """Check the repository at arguments[0] (default: the one of this file); return the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    n_long = 0
    for page in pages(root):
        for number, line in prose(page.read_text(encoding="utf-8")):
            if len(line) > LONGEST and can_be_broken(line):
                print(f"{page}:{number}: {len(line)} characters: break the line, which may have {LONGEST}")
                n_long += 1
    print(f"check_prose: {n_long} offences")
    return 1 if n_long else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
