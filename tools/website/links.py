"""The links of a page: those to other pages stay as they are, those to sources lead to the repository, or to a copy.

Without the repository's address, a copy of the source is part of the site, so that no link leads nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: A target that begins with a scheme or with # is none of ours.
_LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>(?!\w+:|#)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^(?P<fence>```+)[^\n]*\n.*?^(?P=fence)$", re.S | re.M)


@dataclass(frozen=True)
class Target:
    """What a link leads to.

    Attributes:
        path: its path in the repository.
        is_folder: whether it is a folder.
    """

    path: str
    is_folder: bool


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to what is not in a fenced block of code."""
    parts = []
    end = 0
    for block in _FENCE.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


_OWN_ANCHOR = re.compile(r"<a id=\"([^\"]+)\"")


def own_anchors(text: str) -> frozenset[str]:
    """Return the anchors that a page sets in HTML, which MyST does not know."""
    return frozenset(_OWN_ANCHOR.findall(text))


def rewritten(
    text: str, page: str, pages: Mapping[str, frozenset[str]], where: Callable[[Target], str], root: Path
) -> str:
    """Return the text of `page` with the links to what is neither one of `pages` nor a picture as `where` wants them.

    Without an address, the link's text is left. `pages` gives each page's own anchors: links to these become HTML.
    """

    def one(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(page), link["target"]))
        if link["anchor"] and link["anchor"][1:] in pages.get(path, ()):
            address = link["target"].removesuffix(".md") + ".html" + link["anchor"]
            return f'<a href="{address}">{link["text"][1:-1]}</a>'
        if path in pages or path.endswith((".png", ".svg")):
            return link[0]
        address = where(Target(path, (root / path).is_dir()))
        return f"{link['text']}({address})" if address else link["text"][1:-1]

    return outside_code(text, lambda prose: _LINK.sub(one, prose))


def pictures(text: str, page: str) -> Iterator[str]:
    """Yield the paths of the pictures that a page shows."""
    for link in _LINK.finditer(text):
        if link["target"].endswith((".png", ".svg")):
            yield os.path.normpath(os.path.join(os.path.dirname(page), link["target"]))


def in_repository(address: str, ref: str) -> Callable[[Target], str]:
    """Return what gives the address of a source in the repository."""
    return lambda target: f"{address}/{'tree' if target.is_folder else 'blob'}/{ref}/{target.path}"


def as_copy(page: str, wanted: set[str]) -> Callable[[Target], str]:
    """Return what leads from `page` to the copy of a source, and adds it to `wanted`; to folders nothing does."""

    def where(target: Target) -> str:
        if target.is_folder:
            return ""
        wanted.add(target.path)
        return os.path.relpath(target.path, os.path.dirname(page) or ".")

    return where
