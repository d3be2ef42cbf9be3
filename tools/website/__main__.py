"""Write the sources of the site: PYTHONPATH=tools python -m website FOLDER [--repository ADDRESS --ref TAG]."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from website import api, c_header, commands, gallery, links

ROOT = Path(__file__).resolve().parents[2]
#: The page whose lists of links are the order of the site.
CONTENTS = "docs/README.md"
#: The repository's first page is the site's.
FRONT = "README.md"
HEADERS = {"ciranda.h": "The C interface", "table.h": "The table of the C interface's functions"}

_CAPTION = re.compile(r"^(?P<caption>[^\n]+):\n\n(?P<items>(?:- .*\n(?:  .*\n)*)+)", re.M)
_LISTED = re.compile(r"\]\(([^)#\s]+\.md)\)")


@dataclass(frozen=True)
class Source:
    """Where the repository can be seen: its address (empty if it is not said), and the tag or branch."""

    repository: str
    ref: str


def hand_written() -> list[str]:
    """The pages that the repository has, as paths in it."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [ROOT / folder / "README.md" for folder in ("benchmarks", "cpp", "examples")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def notebooks() -> list[str]:
    """The notebooks, which are run as the site is built, as paths in the repository."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.ipynb"))


def generated(package_sources: Path) -> Iterator[tuple[str, str]]:
    """The reference and the gallery, as paths and texts."""
    reference = api.Reference(api.load(package_sources))
    for module in api.MODULES:
        yield f"reference/python/{module.name}.md", reference.page(module)
    if reference.without_docstring:
        raise SystemExit(f"website: public, but without a docstring: {', '.join(reference.without_docstring)}")
    for name, title in HEADERS.items():
        header = (ROOT / "cpp" / "include" / "ciranda" / name).read_text(encoding="utf-8")
        yield f"reference/c/{name}.md", c_header.page(title, header, f"ciranda/{name}")
    yield "reference/commands.md", commands.page()
    for program in gallery.programs(ROOT):
        yield f"gallery/{gallery.flat(program, ROOT)}.md", gallery.page(program, ROOT)


def sections(contents: str) -> Iterator[tuple[str, list[str]]]:
    """The lists of the page of contents: each one's caption, and the pages it leads to, as paths in the repository."""
    for found in _CAPTION.finditer(contents):
        pages = _LISTED.findall(found["items"])
        yield found["caption"], [Path("docs", page).as_posix().replace("docs/../", "") for page in pages]


def trees(contents: str) -> str:
    """The tables of contents of the side bar."""
    listed = list(sections(contents))
    of_modules = [f"reference/python/{module.name}.md" for module in api.MODULES]
    of_headers = [f"reference/c/{name}.md" for name in HEADERS]
    of_programs = [f"gallery/{gallery.flat(program, ROOT)}.md" for program in gallery.programs(ROOT)]
    made = {"Reference": ["reference/commands.md", *of_modules, *of_headers]}
    parts = [_tree(caption, [*pages, *made.get(caption, ())]) for caption, pages in listed]
    parts.append(_tree("Examples", ["examples/README.md", *notebooks(), *of_programs]))
    placed = {page for _, pages in listed for page in pages} | {"examples/README.md", FRONT}
    rest = [page for page in hand_written() if page not in placed]
    return "\n".join([*parts, _tree("The project", rest)])


def _tree(caption: str, pages: list[str]) -> str:
    listed = "\n".join(page.removesuffix(".md").removesuffix(".ipynb") for page in pages)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def write(folder: Path, source: Source) -> int:
    """Write all pages, and what they show or lead to, into an empty `folder`; return the number of pages."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = hand_written()
    known = {page: links.own_anchors((ROOT / page).read_text(encoding="utf-8")) for page in pages}
    known |= dict.fromkeys(notebooks(), frozenset())
    wanted = set(notebooks())
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        wanted.update(links.pictures(text, page))
        where: Callable[[links.Target], str] = links.as_copy(page, wanted)
        if source.repository:
            where = links.in_repository(source.repository, source.ref)
        text = links.rewritten(text, page, known, where, ROOT)
        if page == FRONT:
            text += "\n" + trees((ROOT / CONTENTS).read_text(encoding="utf-8"))
        _put(folder / ("index.md" if page == FRONT else page), _to_front(text, page))
    made = list(generated(ROOT / "src"))
    for page, text in made:
        _put(folder / page, text)
    for path in sorted(wanted):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)
    return len(pages) + len(made)


def _to_front(text: str, page: str) -> str:
    """Links to the repository's first page lead to the site's, which has another name."""
    up = "../" * page.count("/")
    to_front = re.compile(rf"\]\({re.escape(up)}README\.md(?=[#)])")
    return links.outside_code(text, lambda prose: to_front.sub(f"]({up}index.md", prose))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Write the sources; the exit code."""
    parser = argparse.ArgumentParser(prog="website", description="Write the sources of the site.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repository", default="", help="address, to which links to sources lead; else to copies")
    parser.add_argument("--ref", default="main", help="the tag or branch of these links")
    given = parser.parse_args()
    n_pages = write(given.folder, Source(given.repository.rstrip("/"), given.ref))
    print(f"website: {n_pages} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
