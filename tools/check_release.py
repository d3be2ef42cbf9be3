"""Check that a tag can be released: it is the version, and the changelog has that version with a date.

python tools/check_release.py TAG            exit code 1, and the reason, if it cannot
python tools/check_release.py TAG --notes    the same, and print the version's part of the changelog
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_VERSION = re.compile(r"project\(ciranda\s+VERSION\s+(?P<version>[0-9.]+)")
_PART = re.compile(r"^## (?P<version>[\w.]+)(?P<rest>.*)$", re.M)
_DATE = re.compile(r", \d{4}-\d{2}-\d{2}")


class CannotReleaseError(Exception):
    """The reason, as a sentence."""


def notes(tag: str, cmake: str, changelog: str) -> str:
    """Return the part of the changelog for `tag`. Raises CannotReleaseError."""
    found = _VERSION.search(cmake)
    if found is None:
        raise CannotReleaseError("CMakeLists.txt has no project(ciranda VERSION ...)")
    version = found["version"]
    if tag != f"v{version}":
        raise CannotReleaseError(f"the tag is {tag}, but the version in CMakeLists.txt is {version}: v{version} fits")
    parts = list(_PART.finditer(changelog))
    if not parts or parts[0]["version"] != version:
        raise CannotReleaseError(f"the first heading of CHANGELOG.md must be: ## {version}, YYYY-MM-DD")
    if not _DATE.fullmatch(parts[0]["rest"]):
        raise CannotReleaseError(f"CHANGELOG.md has '{parts[0][0]}': write ## {version}, YYYY-MM-DD")
    end = parts[1].start() if len(parts) > 1 else len(changelog)
    return changelog[parts[0].end() : end].strip() + "\n"


def main(arguments: list[str]) -> int:
    """Check arguments[0]; return the exit status."""
    tag, *options = arguments or [""]
    try:
        text = notes(
            tag,
            (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"),
            (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        )
    except CannotReleaseError as error:
        print(f"check_release: {error}", file=sys.stderr)
        return 1
    if "--notes" in options:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
