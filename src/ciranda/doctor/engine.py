"""The engine itself: is it there, what does it use, and do two ranks get a sum right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from ciranda.doctor.finding import Finding

_REBUILD = "reinstall: pip install --force-reinstall . (needs a C++20 compiler)"
_JOB_SECONDS = 60

# Checks sum and identity on two ranks; every rank says what it got.
_TRIAL = """
import numpy, ciranda
ciranda.init()
rank, size = ciranda.rank(), ciranda.size()
total = ciranda.allreduce(numpy.arange(1000.0) + rank, op=ciranda.Sum, name="doctor")
assert size == 2 and (total == 2 * numpy.arange(1000.0) + 1).all(), (rank, size, total[:3])
ciranda.shutdown()
"""


def library() -> Iterator[Finding]:
    """Whether the compiled engine loads."""
    try:
        from ciranda import _core
    except ImportError as error:
        yield Finding("engine", "fail", f"cannot be loaded: {error}", _REBUILD)
        return
    yield Finding("engine", "ok", f"loaded from {_core.__file__}")


def simd() -> Iterator[Finding]:
    """The instruction set that reductions use, and the best that this processor has."""
    try:
        from ciranda._core import best_simd_level, simd_level
    except ImportError:
        return
    used, best = simd_level(), best_simd_level()
    if used != best:
        advice = f"this processor can do {best}: unset CIRANDA_SIMD"
        yield Finding("vector instructions", "warn", used, advice)
    else:
        yield Finding("vector instructions", "ok", used)


def two_ranks() -> Iterator[Finding]:
    """A real job: launcher, agent, two processes, store, authentication, and an allreduce that must be right."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CIRANDA_", "HOROVOD_"))}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, "-c", _TRIAL]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_JOB_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        advice = "see how far this gets: ciranda run -np 2 --verbose python -c 'import ciranda; ciranda.init()'"
        yield Finding("two ranks", "fail", f"no end after {_JOB_SECONDS} s", advice)
        return
    seconds = time.monotonic() - start
    if done.returncode == 0:
        yield Finding("two ranks", "ok", f"allreduce of 1000 numbers is right; the whole job took {seconds:.1f} s")
    else:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        yield Finding("two ranks", "fail", f"exit code {done.returncode}: {last}", "see the lines above that failed")
