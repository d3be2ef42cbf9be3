"""Elastic jobs of the frameworks' suites: a script that loses its rank 0 and takes in another process.

Such a script makes each step with rows of `batch_of()`, which the ranks divide, so that its result does not depend on
their number; it notes the rows it has used, and prints its report at its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD_SECONDS = 200.0
N_STEPS = 6
BATCH = 12
FAILING_STEP = 2
WAITING_STEP = 4  # until the lost rank is replaced


@dataclass
class Report:
    """What a rank says at its end."""

    size: int
    rank: int
    weights: list[float]
    rows: list[int]  # that all ranks together have used


def batch_of(step: int, rank: int, size: int) -> list[int]:
    """The rows of this rank's part of a step's batch."""
    return list(range(step * BATCH, (step + 1) * BATCH))[rank::size]


def maybe_die(step: int, rank: int, size: int) -> None:
    """Rank 0 is killed at FAILING_STEP, once in the job."""
    if step == FAILING_STEP and rank == 0 and size > 1:
        try:
            Path(os.environ["ELASTIC_FOLDER"], "killed").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def report(rank: int, size: int, weights: Sequence[Any], rows: Sequence[int]) -> None:
    """Print the report, if this is the end of a script."""
    flat = [float(value) for array in weights for value in array.ravel()]
    sys.stdout.write(json.dumps({"size": size, "rank": rank, "weights": flat, "rows": list(rows)}) + "\n")


def reports_of(script: Path, folder: Path, launcher: Sequence[str]) -> list[Report]:
    """Run the script and return its ranks' reports."""
    done = subprocess.run(
        [*launcher, sys.executable, str(script)],
        env={**os.environ, "ELASTIC_FOLDER": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": _python_path()},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    sys.stderr.write(done.stderr)
    assert done.returncode == 0, done.stderr
    found = [Report(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: each.rank)


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


def check(script: Path, folder: Path) -> None:
    """Three ranks lose rank 0 and get another, and end like one process that loses nobody."""
    elastic = [
        sys.executable,
        "-m",
        "ciranda.launch.cli",
        "run",
        "--elastic",
        "-np",
        "3",
        "--min-np",
        "2",
        "--no-prefix",
    ]
    (alone,) = reports_of(script, folder, [])
    three = reports_of(script, folder, elastic)
    assert (folder / "killed").exists()
    assert [(each.rank, each.size) for each in three] == [(0, 3), (1, 3), (2, 3)]
    for each in three:
        assert each.rows == alone.rows == list(range(N_STEPS * BATCH)), "each row was used once"
        assert each.weights == three[0].weights, "the ranks differ"
        for weight, expected in zip(each.weights, alone.weights, strict=True):
            assert abs(weight - expected) <= 1e-5 * max(1.0, abs(expected))
