"""Check that no modules of the Python package import each other in a cycle while they are imported.

`python tools/check_imports.py [FOLDER OF PACKAGES]` prints a cycle, if there is one, and exits 1. Imports inside of
functions, and for types alone, do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src"


def modules_of(root: Path) -> dict[str, Path]:
    """Return the files of all modules, by name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield what statements import when they are run, as "module" or "module.name"."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from imports_of(statement.orelse)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
            handlers = [line for handler in getattr(statement, "handlers", []) for line in handler.body]
            yield from imports_of([*inner, *handlers])


def graph_of(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return which modules each imports."""
    graph = {}
    for name, path in modules.items():
        wanted = imports_of(ast.parse(path.read_text(encoding="utf-8")).body)
        found = {each if each in modules else each.rpartition(".")[0] for each in wanted}
        graph[name] = (found & modules.keys()) - {name}
    return graph


def main() -> int:
    """Check the packages below the folder that is given, or this project's."""
    modules = modules_of(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    try:
        TopologicalSorter(graph_of(modules)).prepare()
    except CycleError as error:
        print("check_imports: a cycle: " + " imports ".join(reversed(error.args[1])))
        return 1
    print(f"check_imports: {len(modules)} modules, no cycle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
