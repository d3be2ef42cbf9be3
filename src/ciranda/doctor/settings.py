"""The settings in the environment: which are given, and whether they are what the user thinks they are."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator

from ciranda.doctor.engine import run_python
from ciranda.doctor.finding import Finding

_READ = """
import json
from ciranda import _core
problem = ""
try:
    _core.effective_settings()
except ValueError as error:
    problem = str(error)
rows = _core.settings()
print(json.dumps({"names": [row["name"] for row in rows], "horovod": [row["horovod_name"] for row in rows],
                  "problem": problem}))
"""
# What the launcher gives to ranks for its own ends.
_INTERNAL = ("CIRANDA_CALL_FILE", "CIRANDA_RESULT_FD", "CIRANDA_TORCH_STORE")
# What bindings read themselves.
BINDINGS_OWN = ("CIRANDA_PADDLE_OPS",)
_SECONDS = 30


def settings() -> Iterator[Finding]:
    """Those that are given, what ``init()`` refuses, and names that no setting has."""
    given = sorted(name for name in os.environ if name.startswith("CIRANDA_") and name not in _INTERNAL)
    every = [name for name in os.environ if name.startswith(("CIRANDA_", "HOROVOD_"))]
    done = run_python(["-c", _READ], keep=every, seconds=_SECONDS)
    if done.returncode != 0:
        return  # the engine's own check says why
    answer = json.loads(done.stdout.splitlines()[-1])
    given += sorted(name for name in answer["horovod"] if name in os.environ)
    if answer["problem"]:
        yield Finding("settings", "fail", answer["problem"], "init() refuses it")
    for name in given:
        if name.startswith("CIRANDA_") and name not in (*answer["names"], *BINDINGS_OWN):
            close = difflib.get_close_matches(name, answer["names"], n=1)
            advice = f"{close[0]} is one: is that meant?" if close else "docs/guide/settings.md lists them"
            yield Finding("settings", "warn", f"{name} is set, but there is no such setting", advice)
    yield Finding("settings", "ok", ", ".join(f"{name}={os.environ[name]}" for name in given) or "none given")
