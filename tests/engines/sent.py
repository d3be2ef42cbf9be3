"""What the tests of Ray and of Spark have ranks do. Ranks do not import it: each test module registers it by value."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import cloudpickle

import ciranda

EXAMPLES = Path(__file__).parents[2] / "examples"


def total() -> float:
    ciranda.init()
    return float(ciranda.allreduce(1.0, op=ciranda.Sum, name="total"))


def run_within() -> list[str]:
    """Have `ciranda run` start a job of two ranks within this one; what they print, and the errors."""
    ciranda.init()
    rank = "import ciranda; ciranda.init(); print(ciranda.rank(), ciranda.allreduce(1.0, op=ciranda.Sum, name='x'))"
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "-np", "2", sys.executable, "-c", rank]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    ciranda.barrier()
    return [*sorted(done.stdout.splitlines()), done.stderr]


def digits_task() -> ModuleType:
    """The module with the examples' training, which ranks get by value."""
    sys.path.insert(0, str(EXAMPLES))
    module = importlib.import_module("digits_task")
    cloudpickle.register_pickle_by_value(module)
    return module


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait for a condition, in the driver."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
