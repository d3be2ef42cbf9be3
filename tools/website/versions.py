"""Make one site of those of all releases: PYTHONPATH=tools python -m website.versions FOLDER.

FOLDER has each release's site in a folder with its version as the name. Every page of them gets a list of the versions,
from which a reader goes to the same page of another one, and FOLDER/index.html leads to the newest. Only the standard
library.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

#: In each site: what static/switcher.js reads. A site that stands alone has an empty one.
DATA = "_static/versions.js"
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_TO_NEWEST = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Ciranda</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">Ciranda {version}</a>
"""


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def assemble(folder: Path) -> list[str]:
    """Tell the sites in `folder` of each other; return the versions, newest first.

    Raises:
        SystemExit: there is none, or a folder is not a site of a version.
    """
    sites = {path.name: path for path in folder.iterdir() if path.is_dir()}
    wrong = [name for name, path in sites.items() if not _VERSION.fullmatch(name) or not (path / "index.html").exists()]
    if wrong or not sites:
        raise SystemExit(f"website: {', '.join(sorted(wrong)) or folder}: not the site of a version, such as 0.1.0")
    versions = sorted(sites, key=_number, reverse=True)
    pages = {version: _pages(sites[version]) for version in versions}
    for site in sites.values():
        if (site / DATA).exists():  # sites before there was a list of versions have none
            (site / DATA).write_text(f"const cirandaVersions = {json.dumps(pages)};\n", encoding="utf-8")
    (folder / "index.html").write_text(_TO_NEWEST.format(version=versions[0]), encoding="utf-8")
    return versions


def _pages(site: Path) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def main() -> int:
    """Make it; the exit code."""
    (folder,) = sys.argv[1:]
    print(f"website: versions {', '.join(assemble(Path(folder)))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
