"""Check what each header under cpp/ says of its callers against who includes it.

The opening comment of a header has one sentence "Called by ..." (or "Used by ...", for plain values). It names classes,
functions (`connect()`), files (`plugin.cc`, `shm_*.cc`), folders (`agree/`) or "all layers", and must be true both
ways: whoever includes the header is named, and whatever is named reaches the header by its includes. In parentheses and
behind "through", up to the next semicolon, a name need only exist: such a caller has the object from another, or calls
it back. `python tools/check_callers.py [ROOT]` prints each sentence that is wrong, and exits 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from check_layers import concept_of, folder_of

#: As many folders as include a header that "all layers" use.
N_LAYERS_OF_ALL = 8

#: Where the paths of includes begin, relative to cpp/.
_ROOTS = ("", "include", "bindings/native")
#: What is written as a class, but is none of ours.
_FOREIGN = frozenset({"MXNet", "Python", "TensorFlow"})

_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
_SENTENCE = re.compile(r"\b(?:Called|Used) by (?P<names>.+?)\.(?=\s|$)")
_CLASS = re.compile(r"^\s*(?:class|struct|enum class|union)\s+(?:\w+\([^)]*\)\s+)?(\w+)[^;(]*$")
_ALIAS = re.compile(r"^\s*using (\w+) =")
_FUNCTION = re.compile(r"^\s*(?!return|throw|else|case)[A-Za-z][\w:<>,&*\s]*?[\s:&*](\w+)\(")
_NAME = re.compile(
    r"(?P<file>[\w/*]+\.(?:hpp|cc|h|inc)\b)|(?P<folder>\b[a-z]\w*/(?:[a-z]\w*/)*)(?!\w)|(?P<function>\b[a-z]\w*(?=\(\)))"
    r"|(?P<type>\b[A-Z]\w*[a-z]\w*)"
)
_PARENTHESES = re.compile(r"\((?=[^)]).*?\)(?!\))")


@dataclass
class Sources:
    """What is under cpp/: who includes whom, and where names are defined, a header and its source as one concept."""

    files: set[Path] = field(default_factory=set)
    includes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: By the name of the header in includes.
    includers: dict[str, set[Path]] = field(default_factory=lambda: defaultdict(set))
    defined: dict[str, set[Path]] = field(default_factory=lambda: defaultdict(set))

    def reach(self, concept: str, header: str) -> bool:
        """Tell whether `concept` is `header`, or includes it by however many others."""
        seen, left = {concept}, [concept]
        while left:
            new = self.includes[left.pop()] - seen
            seen |= new
            left += new
        return header in seen

    def find(self, match: re.Match[str], beside: Path) -> set[str]:
        """Return the concepts that a name means; if there are files or classes of it beside `beside`, only those."""
        if match["function"]:
            return {concept_of(path) for path in self.defined.get(match["function"], set())}
        if match["file"]:
            found = {path for path in self.files if PurePath("/", path).match(match["file"])}
        else:
            found = self.defined.get(match["type"], set())
        near = {path for path in found if path.parent == beside.parent}
        return {concept_of(path) for path in near or found}


def included_as(path: Path) -> str:
    """Return the name of a header in includes, from its path relative to cpp/."""
    return concept_of(path) + path.suffix


def read(cpp: Path) -> Sources:
    """Read all sources under `cpp`."""
    sources = Sources()
    for path in sorted(p for p in cpp.rglob("*") if p.suffix in {".hpp", ".cc", ".h", ".inc"}):
        user = path.relative_to(cpp)
        sources.files.add(user)
        for line in path.read_text(encoding="utf-8").splitlines():
            for match in filter(None, (_CLASS.match(line), _ALIAS.match(line), _FUNCTION.match(line))):
                sources.defined[match[1]].add(user)
            include = _INCLUDE.match(line)
            if include and any((cpp / root / include[1]).is_file() for root in _ROOTS):
                header = Path(include[1])
                if concept_of(header) != concept_of(user):
                    sources.includes[concept_of(user)].add(concept_of(header))
                    sources.includers[include[1]].add(user)
    return sources


def sentence_of(text: str) -> str | None:
    """Return what follows "Called by" in the comment that begins `text`; None if it has no such sentence."""
    lines = []
    for line in text.splitlines():
        if not line.startswith(("//", "/*", " *")):
            break
        lines.append(line.lstrip("/* "))
    match = _SENTENCE.search(" ".join(lines))
    return match["names"] if match else None


def excused(names: str) -> set[int]:
    """Return the positions in a sentence where a name need not reach the header."""
    positions = {i for match in _PARENTHESES.finditer(names) for i in range(*match.span())}
    begin = 0
    for clause in names.split(";"):
        if "through" in clause:
            positions |= set(range(begin + clause.index("through"), begin + len(clause)))
        begin += len(clause) + 1
    return positions


def judge(header: Path, names: str, sources: Sources) -> Iterator[str]:
    """Yield what is wrong with the sentence `names` of `header`."""
    includers = sources.includers[included_as(header)]
    is_of_all = "all layers" in names
    if is_of_all and len({folder_of(path) for path in includers}) < N_LAYERS_OF_ALL:
        yield f"fewer than {N_LAYERS_OF_ALL} layers include it: name them"
    named: set[str] = set()
    folders: tuple[str, ...] = ()
    may_be_indirect = excused(names)
    for match in _NAME.finditer(names):
        is_direct = match.start() not in may_be_indirect
        if match["folder"]:
            folders += (match["folder"],)
            if is_direct and not any(path.as_posix().startswith(match["folder"]) for path in includers):
                yield f"{match['folder']} does not include it"
            continue
        if match[0] in _FOREIGN:
            continue
        concepts = sources.find(match, header)
        named |= concepts
        if not concepts:
            yield f"there is no {match[0]}"
            continue
        reaching = [sources.reach(user, concept_of(header)) for user in concepts]
        if is_direct and not (all(reaching) if "*" in match[0] else any(reaching)):
            yield f"{match[0]} does not include it"
    for path in sorted(includers):
        if not is_of_all and concept_of(path) not in named and not path.as_posix().startswith(folders):
            yield f"{path} includes it, but is not named"


def main(arguments: list[str]) -> int:
    """Check the repository at arguments[0] (default: the one of this file); return the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    cpp = root / "cpp"
    sources = read(cpp)
    headers = sorted(path for path in sources.files if path.suffix in {".hpp", ".h"})
    n_offences = 0
    for header in headers:
        names = sentence_of((cpp / header).read_text(encoding="utf-8"))
        found = judge(header, names, sources) if names else ['it does not say who calls it: "Called by ..."']
        for offence in found:
            print(f"{cpp / header}:1: {offence}")
            n_offences += 1
    print(f"check_callers: {len(headers)} headers, {n_offences} offences")
    return 1 if n_offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
