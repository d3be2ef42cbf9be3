"""The frameworks whose bindings have a native part: whether the installed version has the functions that it needs."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator

from ciranda._misspelt import BINDINGS_OWN
from ciranda.doctor.engine import run_python
from ciranda.doctor.finding import Finding

#: The framework, and the module of its binding whose `describe()` says what was found.
_NATIVE = (
    ("jax", "ciranda.jax._plugin"),
    ("jax", "ciranda._jax_native"),
    ("mxnet", "ciranda.mxnet._plugin"),
    ("paddle", "ciranda.paddle._plugin"),
    ("tensorflow", "ciranda.tensorflow._plugin"),
)
_SECONDS = 60


def bindings() -> Iterator[Finding]:
    """Load each binding in a separate process, which takes seconds: there is no other test of whether it works."""
    for framework, module in _NATIVE:
        if importlib.util.find_spec(framework) is not None:
            yield _examined(framework, module)


def _examined(framework: str, module: str) -> Finding:
    name = f"binding for {framework}"
    try:
        done = run_python(
            ["-c", f"from {module} import describe; print(describe())"], keep=BINDINGS_OWN, seconds=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Finding(name, "warn", f"not loaded after {_SECONDS} s", f"try: python -c 'import {framework}'")
    if done.returncode == 0:
        return Finding(name, "ok", done.stdout.strip().splitlines()[-1])
    lines = done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"]
    return Finding(name, "fail", lines[-1], f"install a version of {framework} that the guide names, or report this")
