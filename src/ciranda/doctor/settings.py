"""The settings in the environment: which are given, and whether they are what the user thinks they are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from ciranda._hidden import shown
from ciranda._misspelt import INTERNAL, unknown
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
_SECONDS = 30
#: How variables begin by which Horovod is built for GPUs.
_FOR_BUILDS = ("HOROVOD_GPU_", "HOROVOD_CUDA_", "HOROVOD_NCCL_", "HOROVOD_ROCM_")
#: Settings of Horovod's for NCCL, and what there is instead.
OF_NCCL = {
    "HOROVOD_NUM_NCCL_STREAMS": "each GPU has one stream for NCCL, as several would need one order of all calls",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "NCCL itself uses the links within a host before those between hosts",
    "HOROVOD_ENABLE_ASYNC_COMPLETION": "a wait orders streams, and does not stop the host, as far as a way allows it",
    "HOROVOD_BATCH_D2D_MEMCOPIES": "a launch packs any number of tensors",
}


def settings() -> Iterator[Finding]:
    """Those that are given, what ``init()`` refuses, and names that no setting has."""
    given = sorted(name for name in os.environ if name.startswith("CIRANDA_") and name not in INTERNAL)
    every = [name for name in os.environ if name.startswith(("CIRANDA_", "HOROVOD_"))]
    done = run_python(["-c", _READ], keep=every, seconds=_SECONDS)
    if done.returncode != 0:
        return  # the engine's own check says why
    answer = json.loads(done.stdout.splitlines()[-1])
    given += sorted(name for name in answer["horovod"] if name in os.environ)
    if answer["problem"]:
        yield Finding("settings", "fail", answer["problem"], "init() refuses it")
    for name, close in unknown(given, answer["names"]).items():
        advice = f"{close} is one: is that meant?" if close else "docs/guide/settings.md lists them"
        yield Finding("settings", "warn", f"{name} is set, but there is no such setting", advice)
    for name in sorted(name for name in os.environ if name.startswith(_FOR_BUILDS)):
        found = f"{name} is set, and ignored: it chooses how Horovod is built; tensors on GPUs need no such choice here"
        yield Finding("settings", "ok", found)
    for name, why in OF_NCCL.items():
        if name in os.environ:
            yield Finding("settings", "ok", f"{name} is set, and ignored: {why}")
    yield Finding(
        "settings", "ok", ", ".join(f"{name}={shown(name, os.environ[name])}" for name in given) or "none given"
    )
