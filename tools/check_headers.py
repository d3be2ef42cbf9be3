"""Check that every header under cpp/ compiles alone, in any order, and opens with what it is.

`python tools/check_headers.py [--compiler C++] [--jobs N] [ROOT]` compiles each header as a file of its own, prints the
compiler's words for those that do not, and exits 1 if there is one. A header that a source under cpp/ includes before
anything else is left to the build, which compiles it alone by that.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FLAGS = ["-x", "c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion"]
C_FLAGS = ["-x", "c", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"]


_FIRST_INCLUDE = re.compile(r'^#include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def headers_of(root: Path) -> list[Path]:
    """Return the headers under root/cpp, but for those that need the headers of Python, or of Paddle."""
    cpp = root / "cpp"
    found = [*cpp.rglob("*.hpp"), *cpp.rglob("*.h")]
    return sorted(
        path
        for path in found
        if cpp / "bindings" / "python" not in path.parents and "#include <paddle/" not in path.read_text("utf-8")
    )


def folders_of(root: Path) -> tuple[Path, ...]:
    """Return where the compiler looks for headers."""
    return root / "cpp", root / "cpp" / "include", root / "cpp" / "bindings" / "native"


def included_first(root: Path) -> set[Path]:
    """Return the headers that a source under root/cpp includes before anything else."""
    found = [_FIRST_INCLUDE.search(source.read_text(encoding="utf-8")) for source in (root / "cpp").rglob("*.cc")]
    return {folder / first.group(1) for first in found if first for folder in folders_of(root)}


def compile_alone(header: Path, root: Path, compiler: str) -> str:
    """Return what the compiler says against `header` compiled alone (a .h as C too); empty if nothing."""
    includes = [f"-I{folder}" for folder in folders_of(root)]
    languages = [FLAGS, C_FLAGS] if header.suffix == ".h" else [FLAGS]
    said = []
    for flags in languages:
        command = [compiler, *flags, "-Werror", *includes, "-include", str(header), "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said.append(done.stderr.strip())
    return "\n".join(said)


def check(header: Path, root: Path, compiler: str, is_compiled: bool) -> str:
    """Return what is wrong with `header`: what the compiler says, or a missing opening comment or `#pragma once`."""
    text = header.read_text(encoding="utf-8")
    if not text.startswith(("//", "/*")):
        return f"{header}:1: a header opens with a comment that says what it is"
    if "#pragma once" not in text and "#ifndef" not in text:
        return f"{header}:1: #pragma once is missing"
    return "" if is_compiled else compile_alone(header, root, compiler)


def main(arguments: list[str]) -> int:
    """Check every header of a repository; return the exit status."""
    parser = argparse.ArgumentParser(description="Check that every header compiles alone.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)

    headers = headers_of(options.root)
    compiled = included_first(options.root)
    with ThreadPoolExecutor(options.jobs) as pool:
        said = list(pool.map(lambda one: check(one, options.root, options.compiler, one in compiled), headers))
    bad = [words for words in said if words]
    for words in bad:
        print(words)
    print(f"check_headers: {len(headers)} headers, {len(bad)} bad")
    return 1 if bad or not headers else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
