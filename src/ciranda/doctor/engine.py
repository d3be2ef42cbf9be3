"""The engine itself: is it there, what does it use, and do two ranks get a sum right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from ciranda.doctor.finding import Finding
from ciranda.launch.environment import forwarded

_REBUILD = "reinstall: pip install --force-reinstall . (needs a C++20 compiler)"
_JOB_SECONDS = 60
_ALONE_SECONDS = 30

# No assertions: Python runs none of them where PYTHONOPTIMIZE is set.
# An engine that loads may still be of another version, or built for another processor.
_ALONE = """
import os
os.environ["CIRANDA_ENGINE"] = "none"  # also on hosts of a job that has several
import json, numpy, ciranda
from importlib import metadata
from ciranda import _core
try:
    wanted = metadata.version("ciranda")
except metadata.PackageNotFoundError:
    wanted = _core.__version__
ciranda.init()
values = numpy.arange(1000.0, dtype=numpy.float32)
if not (ciranda.allreduce(values, op=ciranda.Sum, name="doctor") == values).all():
    raise SystemExit("a sum is wrong")
answer = {"file": _core.__file__, "version": _core.__version__, "wanted": wanted,
          "simd": _core.simd_level(), "best_simd": _core.best_simd_level()}
ciranda.shutdown()
print(json.dumps(answer))
"""

# Checks sum and identity on two ranks; every rank says what it got.
_TRIAL = """
import numpy, ciranda
ciranda.init()
rank, size = ciranda.rank(), ciranda.size()
total = ciranda.allreduce(numpy.arange(1000.0) + rank, op=ciranda.Sum, name="doctor")
if size != 2 or not (total == 2 * numpy.arange(1000.0) + 1).all():
    raise SystemExit(f"rank {rank} of {size}: the sum begins with {total[:3]}")
ciranda.shutdown()
"""


def library() -> Iterator[Finding]:
    """Whether the compiled engine loads, is of this version, and adds up alone."""
    known, problem = _probe()
    if problem:
        yield Finding("engine", "fail", problem, _REBUILD)
    elif known["version"] != known["wanted"]:
        found = f"{known['file']} is of version {known['version']}, the package of version {known['wanted']}"
        yield Finding("engine", "fail", found, _REBUILD)
    else:
        yield Finding("engine", "ok", f"loaded from {known['file']}")


def simd() -> Iterator[Finding]:
    """The instruction set that reductions use, and the best that this processor has."""
    known, problem = _probe()
    if problem:
        return  # said above
    if known["simd"] != known["best_simd"]:
        advice = f"this processor can do {known['best_simd']}: unset CIRANDA_SIMD"
        yield Finding("vector instructions", "warn", known["simd"], advice)
    else:
        yield Finding("vector instructions", "ok", known["simd"])


def _probe() -> tuple[dict[str, str], str]:
    """The engine's description of itself, or the reason why it does not work.

    In a separate process: an engine that does not fit this machine may crash, and must not end the report.
    """
    try:
        done = run_python(["-c", _ALONE], keep=("CIRANDA_SIMD",), seconds=_ALONE_SECONDS)
    except subprocess.TimeoutExpired:
        return {}, f"hangs: no end after {_ALONE_SECONDS} s"
    if done.returncode < 0:
        return {}, f"crashes: killed by {signal.Signals(-done.returncode).name}"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        return {}, f"does not work: {lines[-1]}"
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer, ""


def run_python(arguments: Sequence[str], keep: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run this Python, with these packages and without the variables of a job, except those in ``keep``."""
    others = {os.fsdecode(name) for name in forwarded(os.environb, remote=False, exclude=("CIRANDA_*", "HOROVOD_*"))}
    environment = {name: value for name, value in os.environ.items() if name in keep or name in others}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def two_ranks() -> Iterator[Finding]:
    """A complete job: launcher, agent, two processes, store, authentication, and an allreduce that must be correct."""
    command = ["-m", "ciranda.launch.cli", "run", "-H", "localhost:2", sys.executable, "-c", _TRIAL]
    start = time.monotonic()
    try:
        done = run_python(command, keep=(), seconds=_JOB_SECONDS)
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
