"""What makes the site: links that work in the repository and in the site, the reference of the headers, the check."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from website import c_header, check, gallery, links, versions  # noqa: E402

PAGES = {"docs/guide/a.md": frozenset({"row"}), "docs/b.md": frozenset()}
IN_REPOSITORY = links.in_repository("https://host/ciranda", "v1.2.3")


def rewritten(text: str, page: str = "docs/guide/a.md") -> str:
    return links.rewritten(text, page, PAGES, IN_REPOSITORY, ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "[b](../b.md) and [b](../b.md#part), [here](#part)",
        "[elsewhere](https://example.org/x.py), [mail](mailto:a@b)",
        "![picture](../figures/peers.png)",
        "```python\nx = table[row](../../cpp/base/status.hpp)\n```\n",
    ],
)
def test_links_that_work_in_the_site_stay(text: str) -> None:
    assert rewritten(text) == text


def test_links_to_sources_lead_to_the_tag() -> None:
    assert rewritten("[a\nb](../../cpp/base/status.hpp), `x`") == (
        "[a\nb](https://host/ciranda/blob/v1.2.3/cpp/base/status.hpp), `x`"
    )
    assert rewritten("[examples](../../examples)") == "[examples](https://host/ciranda/tree/v1.2.3/examples)"


def test_links_to_sources_lead_to_copies_without_a_repository() -> None:
    wanted: set[str] = set()
    where = links.as_copy("docs/guide/a.md", wanted)
    text = links.rewritten("[s](../../cpp/base/status.hpp) [e](../../examples)", "docs/guide/a.md", PAGES, where, ROOT)
    assert text == "[s](../../cpp/base/status.hpp) e"
    assert wanted == {"cpp/base/status.hpp"}


def test_links_to_anchors_in_html_are_html() -> None:
    assert links.own_anchors('| <a id="row"></a>x |') == {"row"}
    assert rewritten("[the row](guide/a.md#row)", "docs/b.md") == '<a href="guide/a.html#row">the row</a>'


HEADER = """/* x.h: what it is.
 */
#ifndef X_H_
#include <stdint.h>

/* ---- the library ---- */

/* Calls ciranda_size() of *context. */
CIRANDA_API int ciranda_size(const ciranda_context* context,
                             int32_t set) CIRANDA_NOEXCEPT;
CIRANDA_API int ciranda_rank(void) CIRANDA_NOEXCEPT;

/* A pair. */
typedef struct pair {
  int a; /* the first */

  int b;
} pair;
"""


def test_a_header_becomes_its_comments_and_declarations() -> None:
    page = c_header.page("The interface", HEADER, "ciranda/x.h")
    assert page.startswith("# The interface\n\n`#include <ciranda/x.h>`\n\nWhat it is.")
    assert "## The library" in page
    assert (
        "::::{c:function} int ciranda_size(const ciranda_context* context, int32_t set)\nint ciranda_rank(void)\n\n"
        "Calls `ciranda_size()` of \\*context." in page
    )
    assert "A pair.\n\n```c\ntypedef struct pair {\n  int a; /* the first */\n\n  int b;\n} pair;\n```" in page
    assert "X_H_" not in page


def test_every_function_of_the_headers_is_in_the_reference() -> None:
    header = (ROOT / "cpp" / "include" / "ciranda" / "ciranda.h").read_text(encoding="utf-8")
    page = c_header.page("", header, "ciranda/ciranda.h")
    declared = re.findall(r"^CIRANDA_API [^;(]*?(ciranda_\w+)\(", header, re.M)
    assert len(declared) > 40
    assert "CIRANDA_API" not in page
    described = re.findall(r"^(?:::::\{c:function\} )?(?:const )?\w+\*? \*?(ciranda_\w+)\([^`\n]*\)$", page, re.M)
    assert sorted(described) == sorted(declared)


def test_every_example_says_what_it_is() -> None:
    programs = gallery.programs(ROOT)
    assert len(programs) > 15
    for program in programs:
        heading, said, _ = gallery.page(program, ROOT).split("\n\n", 2)
        assert heading.startswith("# ")
        assert not said.startswith("```"), program


def test_what_the_gallery_shows_was_printed_by_the_commands_of_its_programs() -> None:
    programs = {gallery.flat(each, ROOT): each for each in gallery.programs(ROOT)}
    records = sorted(gallery.RECORDS.glob("*.txt"))
    assert records
    for record in records:
        program, text = programs[record.stem], record.read_text(encoding="utf-8")
        assert text.startswith(f"$ {gallery.command(program)}\n")
        assert text in gallery.page(program, ROOT)


# What these print is nothing; how fast a machine is; and what takes a cluster's processes minutes to start.
WITHOUT_RECORD = re.compile(r"loggers/|imagenet_shaped|ray/|spark/")


def test_the_gallery_shows_what_the_examples_print() -> None:
    missing = [
        each for each in gallery.programs(ROOT) if not (gallery.RECORDS / f"{gallery.flat(each, ROOT)}.txt").exists()
    ]
    given = [each.relative_to(ROOT).as_posix() for each in missing if gallery.command(each)]
    assert [each for each in given if not WITHOUT_RECORD.search(each)] == []


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (
            "X.\n\n    ciranda run -np 2 python examples/x.py\n    ciranda run python y.py\n",
            "ciranda run -np 2 python examples/x.py",
        ),
        ("X: `ciranda run -np 2 python examples/x.py`.\n", "ciranda run -np 2 python examples/x.py"),
        ("X: ciranda run -np 2 python examples/x.py DIR.", "ciranda run -np 2 python examples/x.py DIR"),
        ("X.\n\n    KERAS_BACKEND=torch ciranda run python x.py\n", "KERAS_BACKEND=torch ciranda run python x.py"),
        ("X.\n\n    python x.py [NUMBER OF RANKS]\n", "python x.py"),
        ("X.", ""),
    ],
)
def test_the_command_of_an_example_is_what_it_says(tmp_path: Path, said: str, command: str) -> None:
    program = tmp_path / "x.py"
    program.write_text(f'"""{said}"""\n', encoding="utf-8")
    assert gallery.command(program) == command


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ('<a href="gone.html">x</a>', "lead nowhere: gone.html"),
        ('<a href="#gone">x</a>', "lead nowhere: #gone"),
        ('<a href="other.html#gone">x</a>', "lead nowhere: other.html#gone"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js from elsewhere"),
        ('<img src="gone.png">', "lead nowhere: gone.png"),
    ],
)
def test_what_is_wrong_with_a_site_is_told(page: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "objects.inv").touch()
    (tmp_path / "other.html").write_text('<p id="there">x</p>', encoding="utf-8")
    index = tmp_path / "index.html"
    index.write_text('<a href="other.html#there">x</a><a href="https://example.org">y</a>', encoding="utf-8")
    assert check.problems(tmp_path) == []
    index.write_text(page, encoding="utf-8")
    (problem,) = check.problems(tmp_path)
    assert complaint in problem


def site_of(folder: Path, version: str, *pages: str) -> Path:
    site = folder / version
    for page in (*pages, "_static/versions.js"):
        (site / page).parent.mkdir(parents=True, exist_ok=True)
        (site / page).write_text("")
    return site


def test_each_site_has_a_list_of_all_versions(tmp_path: Path) -> None:
    old = site_of(tmp_path, "0.9.0", "index.html")
    new = site_of(tmp_path, "0.10.0", "index.html", "docs/guide/a.html")
    (site_of(tmp_path, "0.1.0", "index.html") / "_static" / "versions.js").unlink()
    assert versions.assemble(tmp_path) == ["0.10.0", "0.9.0", "0.1.0"]
    data = (new / versions.DATA).read_text()
    assert data == (old / versions.DATA).read_text()
    assert data.startswith('const cirandaVersions = {"0.10.0": ["docs/guide/a.html", "index.html"], "0.9.0": ["index.')
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()
    assert check.problems(tmp_path)[1:] == []  # but that there is one inventory for each version


@pytest.mark.parametrize("name", ["v0.1.0", "main", "0.2.0"])
def test_what_is_not_the_site_of_a_version_is_named(tmp_path: Path, name: str) -> None:
    site_of(tmp_path, "0.1.0", "index.html")
    (tmp_path / name).mkdir()
    with pytest.raises(SystemExit, match=name):
        versions.assemble(tmp_path)
