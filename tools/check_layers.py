"""Check who includes whom under cpp/, and that no CMakeLists.txt links what its folder may not use.

ALLOWED is the architecture: the folders stand in the order of a tensor's way, each with the folders that it may use
directly; FACES says which headers of a folder others see, where not all; ROOMS narrows what a folder in one of them may
use. Within a folder, no concept may need another that needs it: a header and its source count as one concept.
`python tools/check_layers.py [ROOT]` prints every offending line and exits 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ALLOWED: dict[str, frozenset[str]] = {
    "base": frozenset({"ciranda"}),
    "crypto": frozenset({"base"}),
    "call": frozenset({"base", "ciranda"}),
    "agree": frozenset({"base", "call"}),
    "fuse": frozenset({"base", "call"}),
    "kernels": frozenset({"base"}),
    "transport": frozenset({"base", "crypto"}),
    "collective": frozenset({"base", "call", "fuse", "kernels", "transport"}),
    "backend": frozenset({"base", "call", "fuse", "kernels", "transport", "collective"}),
    "observe": frozenset({"base", "call", "ciranda"}),
    "membership": frozenset({"base", "crypto", "transport"}),
    "progress": frozenset({"base", "transport"}),
    "execute": frozenset({"base", "call", "agree", "fuse", "kernels", "transport", "collective", "backend", "observe"}),
    "engine": frozenset(
        {"base", "call", "agree", "kernels", "transport", "backend", "observe", "membership", "progress", "execute"}
    ),
    # The engine's face is made of calls. A binding also tells the SIMD level in use (kernels), and shares its world
    # with those that come by the C ABI (capi).
    "capi": frozenset({"base", "call", "observe", "engine", "membership", "ciranda"}),
    "bindings": frozenset({"base", "crypto", "call", "kernels", "observe", "engine", "membership", "capi", "ciranda"}),
    # The public headers stand on their own: they are installed without the rest. The tables take their values from
    # them.
    "ciranda": frozenset(),
}

# What other layers may include of these; the rest is private. Backends has the implementations.
FACES: dict[str, frozenset[str]] = {
    "backend": frozenset(
        {"backend.hpp", "backends.hpp", "candidate.hpp", "device.hpp", "found_nccl.hpp", "registry.hpp"}
    ),
}

# Folders of a layer that use only some of what it may: each with those layers, and itself.
ROOMS: dict[str, frozenset[str]] = {
    # A GPU's compiler reads the *.inc here, and arguments.hpp.
    "backend/cuda/kernels": frozenset({"base"}),
}

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
_LAYER_CALL = re.compile(r"ciranda_(?:layer|python_module)\s*\(([^)]*)\)")
_KEYWORDS = frozenset({"NAME", "DEPS", "SOURCES"})


@dataclass(frozen=True)
class Offence:
    """One line that breaks the architecture: where it stands and what is wrong with it."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        """Return the offence the way compilers print one: path:line: message."""
        return f"{self.path}:{self.line}: {self.message}"


def folder_of(path: Path) -> str:
    """Return the layer of a path relative to cpp/; the public headers in include/ciranda are "ciranda"."""
    return "ciranda" if path.parts[0] == "include" else path.parts[0]


def concept_of(path: Path) -> str:
    """Return what a header and its source share: their path as it is included, without the end of the name."""
    parts = path.with_suffix("").parts
    return "/".join(parts[1:] if parts[0] == "include" else parts[2:] if parts[:2] == ("bindings", "native") else parts)


def judge(user: str, used: str, what: str) -> str | None:
    """Say what is wrong with folder `user` using folder `used` by way of `what`, or return None if it may."""
    if user not in ALLOWED:
        return f"{user}/ is not in the table ALLOWED of tools/check_layers.py"
    if used not in ALLOWED:
        return f"{what}: write the path from cpp/, beginning with a layer ({used} is none)"
    if used != user and used not in ALLOWED[user]:
        may = ", ".join(sorted(ALLOWED[user])) or "nothing"
        return f"{what}: {user} may not use {used} (it may use {may})"
    return None


def includes_of(cpp: Path) -> Iterator[tuple[Path, int, Path]]:
    """Yield each quoted include under the folder `cpp`: the file, the number of the line, and the header it names."""
    for path in sorted(p for p in cpp.rglob("*") if p.suffix in {".hpp", ".cc", ".h", ".c", ".inc"}):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if match := _INCLUDE.match(text):
                yield path, number, Path(match[1])


def check_includes(cpp: Path) -> Iterator[Offence]:
    """Yield an offence for each quoted include under the folder `cpp` that the table does not allow."""
    for path, number, header in includes_of(cpp):
        user = folder_of(path.relative_to(cpp))
        what = f'#include "{header}"'
        message = judge(user, header.parts[0], what) or judge_face(user, header, what)
        if message := message or judge_room(path.relative_to(cpp).parent.as_posix(), header, what):
            yield Offence(path, number, message)


def judge_face(user: str, header: Path, what: str) -> str | None:
    """Say that `header` is private to a folder other than `user`, or return None if it is not."""
    used = folder_of(header)
    face = FACES.get(used)
    if face is None or used == user or str(header.relative_to(used)) in face:
        return None
    return f"{what}: {used} shows {user} only {', '.join(sorted(face))}"


def judge_room(room: str, header: Path, what: str) -> str | None:
    """Say that the folder `room` of a layer may not use `header`, or return None if it may."""
    allowed = ROOMS.get(room)
    if allowed is None or header.parent.as_posix() == room or header.parts[0] in allowed:
        return None
    return f"{what}: {room} may use {', '.join(sorted(allowed))} alone"


def check_circles(cpp: Path) -> Iterator[Offence]:
    """Yield an offence for a circle of includes in each folder of `cpp`; a header and its source count as one."""
    folders: dict[str, dict[str, dict[str, tuple[Path, int]]]] = {}
    for path, number, header in includes_of(cpp):
        user, used = concept_of(path.relative_to(cpp)), concept_of(header)
        if user != used:
            graph = folders.setdefault(folder_of(path.relative_to(cpp)), {})
            graph.setdefault(user, {}).setdefault(used, (path, number))
    for graph in folders.values():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            yield Offence(*graph[circle[0]][circle[1]], "a circle: " + " includes ".join(circle))


def check_links(cpp: Path) -> Iterator[Offence]:
    """Yield an offence for each layer in the DEPS of a CMakeLists.txt under `cpp` that the table does not allow."""
    for path in sorted(cpp.glob("*/CMakeLists.txt")):
        user = path.parent.name
        text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
        for call in _LAYER_CALL.finditer(text):
            number = text.count("\n", 0, call.start()) + 1
            for dep in linked_layers(call[1].split()):
                if message := judge(user, dep, f"DEPS {dep}"):
                    yield Offence(path, number, message)


def linked_layers(words: list[str]) -> list[str]:
    """Return the layers that follow DEPS in the words of a call, without targets of packages (a::b) and variables."""
    keyword = ""
    layers = []
    for word in words:
        if word in _KEYWORDS:
            keyword = word
        elif keyword == "DEPS" and "::" not in word and "$" not in word:
            layers.append(word)
    return layers


def main(arguments: list[str]) -> int:
    """Check the repository at arguments[0] (default: the one of this file); return the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    cpp = root / "cpp"
    offences = [*check_includes(cpp), *check_circles(cpp), *check_links(cpp)]
    for offence in offences:
        print(offence)
    print(f"check_layers: {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
