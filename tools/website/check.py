"""Check the site as it was built: PYTHONPATH=tools python -m website.check FOLDER.

Every link within it leads to a file and, behind #, to a name in it; nothing is loaded from elsewhere, so that pages and
search work offline; and the inventory, which other projects' references use, is there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href"}


class Page(HTMLParser):
    """What a page has and refers to.

    Attributes:
        names: what links may lead to.
        links: the targets of its links.
        loaded: what it cannot do without.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        given = {name: value or "" for name, value in attrs}
        self.names.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADED and _LOADED[tag] in given:
            self.loaded.append(given[_LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return what is wrong with the site in a folder."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [] if (site / "objects.inv").exists() else ["there is no objects.inv"]
    missing = defaultdict(list)
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name} loads {each} from elsewhere" for each in page.loaded if urlsplit(each).netloc]
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            is_named = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].names
            if not target.exists() or not is_named:
                missing[link].append(str(name))
    found += [f"{names[0]} and {len(names) - 1} other pages lead nowhere: {link}" for link, names in missing.items()]
    return found


def main() -> int:
    """Print what is wrong; the exit code."""
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    for each in found:
        print(f"website: {each}")
    print(f"website: {len(list(site.rglob('*.html')))} pages checked, {len(found)} offences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
