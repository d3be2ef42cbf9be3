"""Check the thread annotations (cpp/base/thread_annotations.hpp) with clang: who holds the lock that a line needs.

`python tools/check_threads.py [--compiler CLANG++] [--jobs N] [ROOT]` lets clang analyse the sources of each folder of
cpp/ that has annotations, prints what it says, and exits 1 if it says anything. As in the build, eight sources are
compiled as one, since most of the time goes into the headers that they share.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FLAGS = ["-x", "c++", "-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety"]
_ANNOTATIONS = '#include "base/thread_annotations.hpp"'
_TOGETHER = 8


def batches_of(cpp: Path) -> Iterator[list[Path]]:
    """Yield the sources to compile as one, of the folders in which a file includes the annotations."""
    for folder in sorted(path for path in cpp.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*") if path.suffix in {".hpp", ".cc"})
        sources = [path for path in files if path.suffix == ".cc"]
        if any(_ANNOTATIONS in path.read_text(encoding="utf-8") for path in files):
            yield from (sources[at : at + _TOGETHER] for at in range(0, len(sources), _TOGETHER))


def analyse(sources: list[Path], cpp: Path, compiler: str) -> str:
    """Return what the compiler says against the sources, which it compiles as one; empty if nothing."""
    together = "".join(f'#include "{source}"\n' for source in sources)
    command = [compiler, *FLAGS, f"-I{cpp}", f"-I{cpp / 'include'}", "-"]
    done = subprocess.run(command, input=together, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode != 0 else ""


def main(arguments: list[str]) -> int:
    """Check the annotations of a repository; return the exit status."""
    parser = argparse.ArgumentParser(description="Check the thread annotations with clang.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--compiler", default="clang++")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)

    cpp = options.root.resolve() / "cpp"
    batches = list(batches_of(cpp))
    with ThreadPoolExecutor(options.jobs) as pool:
        said = list(pool.map(lambda batch: analyse(batch, cpp, options.compiler), batches))
    bad = [words for words in said if words]
    for words in bad:
        print(words)
    print(f"check_threads: {sum(map(len, batches))} sources, {len(bad)} batches bad")
    return 1 if bad or not batches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
