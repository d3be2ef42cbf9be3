"""Run clang-tidy over the engine's sources, several at a time, skipping those that passed before unchanged.

`python tools/run_tidy.py BUILD_FOLDER [FLAG...]` reads the compile commands of a configured build folder and keeps
there, in tidy/, one empty file for each source that passed, named after the hash of all that clang-tidy saw: the
source, the engine headers that it includes, its compile command, .clang-tidy and the flags, which are clang-tidy's.
Exits 1 if clang-tidy finds something.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
#: Options of gcc that clang refuses.
_OF_GCC = re.compile(r" -m(memset|memcpy)-strategy=\S+")


@dataclass(frozen=True)
class Source:
    """A source of the engine and the command that compiles it."""

    path: Path
    command: str


def commands_for_clang(build: Path) -> Path:
    """Write the build's compile commands as clang understands them; return the folder that has them."""
    commands = (build / "compile_commands.json").read_text(encoding="utf-8")
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(_OF_GCC.sub("", commands), encoding="utf-8")
    return folder


def sources_of(folder: Path) -> list[Source]:
    """Return the sources under cpp/ that the build compiles, without the bindings (their headers are not ours)."""
    commands = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
    by_path = {Path(entry["file"]): entry["command"] for entry in commands}
    ours = ROOT / "cpp"
    return [
        Source(path, command)
        for path, command in sorted(by_path.items())
        if path.is_relative_to(ours) and not path.is_relative_to(ours / "bindings")
    ]


def seen_by(path: Path) -> set[Path]:
    """Return the source and every header under cpp/ that it includes, however deep."""
    seen: set[Path] = set()
    todo = [path]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        for name in _INCLUDE.findall(current.read_text(encoding="utf-8")):
            todo += [found for base in ("cpp", "cpp/include") if (found := ROOT / base / name).exists()]
    return seen


def key_of(source: Source, flags: list[str]) -> str:
    """Return the hash of everything that decides what clang-tidy says about `source`."""
    digest = hashlib.sha256("\0".join([source.command, *flags]).encode())
    for path in [ROOT / ".clang-tidy", *sorted(seen_by(source.path))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tidy(source: Source, folder: Path, flags: list[str]) -> str:
    """Return what clang-tidy says against `source`; empty if nothing, now or when it last looked the same."""
    stamp = folder / key_of(source, flags)
    if stamp.exists():
        return ""
    command = ["clang-tidy", "-p", str(folder), "--quiet", *flags, str(source.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        stamp.touch()
        return ""
    return done.stdout.strip() or done.stderr.strip()


def main(arguments: list[str]) -> int:
    """Run clang-tidy, with the flags behind it, for the build folder arguments[0]; return the exit status."""
    folder = commands_for_clang(Path(arguments[0]).resolve())
    sources = sources_of(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [words for words in pool.map(lambda source: tidy(source, folder, arguments[1:]), sources) if words]
    for words in said:
        print(words)
    print(f"run_tidy: {len(sources)} sources, {len(said)} with findings")
    return 1 if said or not sources else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
