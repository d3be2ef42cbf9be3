"""NCCL, by which tensors on GPUs can go: which there is, and whether it can be used.

A process that only asks does not open it: NCCL is large, and the first that is opened stays the process's.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import NamedTuple

from ciranda import _core

_ASK = "import json, sys; from ciranda import _core; print(json.dumps(_core.find_nccl(sys.argv[1])))"
_SECONDS = 60


class Nccl(NamedTuple):
    """What there is: ``version`` as NCCL has it, 22809 for 2.28.9; 0 for none. ``problem``: empty if it can be used."""

    version: int
    path: str
    problem: str

    @property
    def text(self) -> str:
        """As in "2.28.9"."""
        return f"{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}"


def nccl() -> Nccl:
    """Return the NCCL that this process has loaded, else the one that it would open."""
    loaded = _core.loaded_nccl()
    return _in_another_process(os.environ.get("CIRANDA_NCCL", "")) if loaded is None else Nccl(*loaded)


@functools.cache
def _in_another_process(named: str) -> Nccl:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", _ASK, named]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Nccl(0, "", f"NCCL was not looked for: {error}")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        return Nccl(0, "", f"NCCL cannot be opened: {last}")
    return Nccl(*json.loads(done.stdout.splitlines()[-1]))
