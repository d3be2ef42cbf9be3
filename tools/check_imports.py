"""Check that no modules of the Python package need each other in a cycle, and that late imports say why they are late.

Imports inside of functions count, as they only hide a cycle; those for types alone do not. A module of a package under
ROOT that is imported inside of a function must have a comment on that line: the framework is optional, or the import
would take long where it is not needed.

`python tools/check_imports.py [FOLDER OF PACKAGES]` prints what is wrong, and exits 1 if anything is.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1] / "src"


class Import(NamedTuple):
    """What a statement imports, as "module" or "module.name"; its line; and whether it is inside of a function."""

    target: str
    line: int
    is_late: bool


def modules_of(root: Path) -> dict[str, Path]:
    """Return the files of all modules, by name; for those in C, their stubs."""
    found: dict[str, Path] = {}
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):
        parts = path.relative_to(root).with_suffix("").parts
        found.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)
    return found


def imports_of(body: Iterable[ast.AST], is_late: bool = False) -> Iterator[Import]:
    """Yield what statements import, or the functions in them, when they are run."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, is_late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(f"{node.module}.{alias.name}", node.lineno, is_late) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports_of(node.orelse, is_late)
        else:
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from imports_of(ast.iter_child_nodes(node), is_late or is_function)


def check(modules: dict[str, Path]) -> Iterator[str]:
    """Yield the late imports without a reason, and a cycle, if there is one."""
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        graph[name] = set()
        for target, line, is_late in imports_of(ast.parse(text).body):
            module = target if target in modules else target.rpartition(".")[0]
            if module not in modules or module == name:
                continue
            graph[name].add(module)
            if is_late and "  # " not in lines[line - 1]:
                yield f"{path}:{line}: {module} is imported inside of a function: a comment must say why"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "a cycle: " + " imports ".join(reversed(error.args[1]))


def main() -> int:
    """Check the packages below the folder that is given, or this project's."""
    modules = modules_of(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    offences = list(check(modules))
    for offence in offences:
        print(f"check_imports: {offence}")
    print(f"check_imports: {len(modules)} modules, {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
