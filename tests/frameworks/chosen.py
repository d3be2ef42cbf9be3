"""Which frameworks the conformance suite runs for.

SUITE_FRAMEWORKS=numpy,torch says which, and fails where one is not there; by default, all that this environment has.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os

from framework import all_names

#: Programs that are built from source when the suite begins.
BUILT = ("c", "native")
#: Stand-ins on the fake driver: they are here where PYTHONPATH leads to tests/fakes/modules.
STAND_INS = ("cupy",)


def _chosen() -> list[str]:
    asked = os.environ.get("SUITE_FRAMEWORKS", "")
    if asked:
        return asked.split(",")
    return [name for name in all_names() if name in BUILT or importlib.util.find_spec(name) is not None]


FRAMEWORKS = _chosen()


def describe() -> str:
    distributions = importlib.metadata.packages_distributions()  # tensorflow may come from tensorflow-cpu
    versions = [
        name if name in (*BUILT, *STAND_INS) else f"{name} {importlib.metadata.version(distributions[name][0])}"
        for name in FRAMEWORKS
    ]
    others = [name for name in all_names() if name not in FRAMEWORKS]
    return f"frameworks: {', '.join(versions)}" + (f"; not here: {', '.join(others)}" if others else "")
