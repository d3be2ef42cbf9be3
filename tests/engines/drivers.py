"""Programs on hosts that are network namespaces, as the drivers of Ray and Spark: waiting for what they do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

#: What a driver has ranks do: say who they are, or work until they are ended. It imports os, socket, Path, numpy and
#: ciranda before.
RANKS = """
def numbers():
    ciranda.init()
    total = float(ciranda.allreduce(1.0, op=ciranda.Sum, name="total"))
    return (socket.gethostname(), ciranda.rank(), ciranda.local_rank(), ciranda.local_size(), ciranda.cross_rank(),
            ciranda.cross_size(), total)

def work(out):
    ciranda.init()
    ciranda.barrier()
    Path(out, f"rank-{ciranda.rank()}").write_text(f"{socket.gethostname()} {os.getpid()}")
    while True:
        ciranda.allreduce(numpy.ones(3), name="step")
"""


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def end(process: subprocess.Popen[str], seconds: float = 600.0) -> tuple[int, str, str]:
    """Wait for a driver: its exit code, output and errors."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\nit did not end within {seconds:g} s"
    return process.returncode, out, err
