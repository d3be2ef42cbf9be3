"""Writes the stubs of the modules that get their functions from the table `ciranda/_collectives/names.py`.

Type checkers and editors read them; Python does not.

python tools/make_stubs.py [PACKAGE]            write them into the package (default: this repository's)
python tools/make_stubs.py --check [PACKAGE]    exit code 1 if one is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ciranda._collectives.names import OF_TREES, names_of

PACKAGE = Path(__file__).parents[1] / "src" / "ciranda"
#: The first line of each stub.
MARK = "# Written by tools/make_stubs.py from ciranda/_collectives/names.py: change it there, then run that.\n"


class Stub(NamedTuple):
    """How a framework's stub is made: its file, what it imports, and the line for a name."""

    path: str
    imports: str
    line: Callable[[str], str]


def _bound(name: str) -> str:
    return f"{name} = collectives.{name}"


def _bound_or_of_tree(name: str) -> str:
    return f"{name} = of_tree(collectives.{name})" if name in OF_TREES else _bound(name)


STUBS = {
    "numpy": Stub("numpy/ops.pyi", "from ciranda.numpy._numpy_collectives import collectives\n", _bound),
    "torch": Stub("torch/ops.pyi", "from ciranda.torch.tensors import collectives\n", _bound),
    "paddle": Stub("paddle/ops.pyi", "from ciranda.paddle.tensors import collectives\n", _bound),
    "jax": Stub(
        "jax/ops.pyi",
        "from ciranda.jax._jax_collectives import barrier as barrier\n"
        "from ciranda.jax._jax_collectives import collectives, of_tree\n",
        _bound_or_of_tree,
    ),
    "tensorflow": Stub(
        "tensorflow/at_once.pyi",
        "from collections.abc import Callable\nfrom typing import Any\n",
        lambda name: f"{name}: Callable[..., Any]",
    ),
}


def text_of(framework: str) -> str:
    """The stub of a framework."""
    stub = STUBS[framework]
    return "\n".join([f"{MARK}\n{stub.imports}", *map(stub.line, names_of(framework))]) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the stubs; the exit code."""
    package = Path(arguments[-1]) if arguments[-1:] not in ([], ["--check"]) else PACKAGE
    texts = {package / stub.path: text_of(framework) for framework, stub in STUBS.items()}
    if "--check" not in arguments:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path} is not up to date: run python tools/make_stubs.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
