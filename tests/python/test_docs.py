"""The documentation's code runs, its links lead somewhere, and its table of settings is the engine's."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_TURN = ROOT / "tests" / "multiprocess" / "in_turn.py"
PAGES = sorted(
    [
        *(
            ROOT / name
            for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md")
        ),
        *(ROOT / folder / "README.md" for folder in ("benchmarks", "cpp", "examples")),
        *ROOT.glob("docs/**/*.md"),
    ]
)
BLOCK = re.compile(r"^<!-- run(?::(?P<options>[^>]*?))? -->\n```(?P<language>\w+)\n(?P<code>.*?)^```$", re.S | re.M)
PYTHON = re.compile(r"(?P<before>[^\n]*)\n```python\n")
TO_HEADING = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*\.md)?#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$|<a id=\"([^\"]+)\"", re.M)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)|<img[^>]* src=\"(?!https?:)([^\"]+)\"")


@dataclass(frozen=True)
class Example:
    page: str
    line: int
    language: str
    code: str
    np: int
    needs: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples() -> list[Example]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            options = dict(option.split("=") for option in shlex.split(match["options"] or ""))
            line = text.count("\n", 0, match.start()) + 1
            name = str(page.relative_to(ROOT))
            np, needs = int(options.get("np", 1)), options.get("needs")
            found.append(Example(name, line, match["language"], match["code"], np, needs))
    return found


def run(tmp_path: Path, *command: str) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=220
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.multiprocess
@pytest.mark.parametrize("np", sorted({example.np for example in examples() if example.language == "python"}))
def test_python_of_the_pages_runs(np: int, tmp_path: Path) -> None:
    """All that so many ranks run, in turn: most of the time of one alone goes into importing torch."""
    scripts = []
    for example in examples():
        is_there = example.needs is None or importlib.util.find_spec(example.needs) is not None
        if example.language == "python" and example.np == np and is_there:
            script = tmp_path / f"{Path(example.page).stem}_{example.line}.py"
            script.write_text(example.code, encoding="utf-8")
            scripts.append(str(script))
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(np), sys.executable, "-W", "error"]
    run(tmp_path, *launch, str(IN_TURN), *scripts)


@pytest.mark.multiprocess
@pytest.mark.parametrize("example", [one for one in examples() if one.language == "bash"], ids=str)
def test_commands_of_the_pages_run(example: Example, tmp_path: Path) -> None:
    if example.needs is not None and importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed")
    run(tmp_path, "bash", "-euo", "pipefail", "-c", example.code)


def test_there_are_examples() -> None:
    assert {example.language for example in examples()} == {"python", "bash"}


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/guide/*.md")), ids=lambda page: page.name)
def test_python_of_the_guide_is_run_or_says_why_not(page: Path) -> None:
    before = [match["before"] for match in PYTHON.finditer(page.read_text(encoding="utf-8"))]
    assert [line for line in before if not re.fullmatch(r"<!-- (run(:.*)?|not run: .+) -->", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [a or b for a, b in LINK.findall(page.read_text(encoding="utf-8"))]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    links = TO_HEADING.findall(page.read_text(encoding="utf-8"))
    missing = [f"{path}#{name}" for path, name in links if name not in anchors(page.parent / path if path else page)]
    assert not missing


def anchors(page: Path) -> set[str]:
    """The names of the headings, as GitHub makes them of their text, and those that the page gives itself."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    names = set()
    for heading, name in HEADING.findall(text):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        names.add(name or re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-"))
    return names


def test_the_readme_of_the_engine_says_who_may_use_a_folder() -> None:
    page = (ROOT / "cpp" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page[page.index("| folder | called by |") :], re.M))
    layers = runpy.run_path(str(ROOT / "tools" / "check_layers.py"))["ALLOWED"]
    allowed = {"include" if name == "ciranda" else name: uses for name, uses in layers.items()}
    for folder in allowed:
        said = allowed.keys() & set(re.findall(r"`(\w+)`", rows[folder]))
        users = allowed.keys() - said - {folder} if rows[folder].startswith("all but") else said
        used_as = "ciranda" if folder == "include" else folder
        assert users == {user for user, uses in allowed.items() if used_as in uses}, folder


def test_the_tests_behind_the_page_on_security_exist() -> None:
    rows = re.findall(r"^\|(?! *(?:test|-)).*\|([^|]*)\|$", (ROOT / "docs" / "security.md").read_text("utf-8"), re.M)
    named = [re.findall(r"`([\w.]+)`", row) for row in rows if row.strip() not in ("test", "---")]
    assert len(named) > 25
    assert all(named)
    python = {
        name
        for path in ROOT.glob("tests/*/test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.M)
    }
    cpp = {
        f"{suite}.{name}"
        for path in ROOT.glob("tests/cpp/*/*_test.cc")
        for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", path.read_text("utf-8"), re.M)
    }
    assert {name for names in named for name in names} - python - cpp == set()


def test_functions_that_a_page_follows_are_where_it_says() -> None:
    page = ROOT / "docs" / "follow_an_allreduce.md"
    named = re.findall(r"\[`([\w:]+)`\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [(name, path) for name, path in named if not defines((page.parent / path).read_text("utf-8"), name)]
    assert not missing


def defines(source: str, name: str) -> bool:
    """Whether a function of this name has a body there, as Class::function or, in the class, as function."""
    *classes, function = name.split("::")
    is_in_class = bool(classes) and re.search(rf"\b(class|struct) ([\w:]+::)?{classes[-1]}\b", source) is not None
    names = [name, function] if is_in_class or not classes else [name]
    return any(re.search(rf"(?<![\w:.>]){re.escape(each)}\b[^;]*\{{", source) for each in names)


def test_the_reference_of_collectives_is_up_to_date() -> None:
    check = subprocess.run([sys.executable, str(ROOT / "tools" / "make_reference.py"), "--check"], check=False)
    assert check.returncode == 0


def test_the_table_of_settings_is_up_to_date() -> None:
    check = subprocess.run([sys.executable, str(ROOT / "docs" / "settings_table.py"), "--check"], check=False)
    assert check.returncode == 0
