"""Elastic jobs of the frameworks' suites: a script that loses its rank 0, takes in another process, loses rank 0 again.

Such a script trains a model of `digits()`. It makes each step with rows of `batch_of()`, which the ranks divide, so
that its result does not depend on their number; it notes the rows it has used, and prints its report at its end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD_SECONDS = 200.0
N_RANKS = 3
N_STEPS = 14
BATCH = 120
FAILING_STEPS = (4, 10)  # rank 0 is killed
WAITING_STEP = 8  # until the lost rank is replaced


@dataclass
class Report:
    """What a rank says at its end."""

    size: int
    rank: int
    weights: list[float]
    rows: list[int]  # that all ranks together have used
    accuracy: float


def digits() -> tuple[Any, Any]:
    """Handwritten digits as fp32 (1797, 64) from 0 to 1, and which they are as int32 (1797,)."""
    import numpy as np
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int32)


def batch_of(step: int, rank: int, size: int) -> list[int]:
    """The rows of this rank's part of a step's batch."""
    return list(range(step * BATCH, (step + 1) * BATCH))[rank::size]


def must_wait(step: int, size: int) -> bool:
    """Whether the ranks commit until the lost one is replaced."""
    return step == WAITING_STEP and 1 < size < N_RANKS


def maybe_die(step: int, rank: int, size: int) -> None:
    """Rank 0 is killed at each of FAILING_STEPS, once in the job."""
    if step in FAILING_STEPS and rank == 0 and size > 1:
        try:
            Path(os.environ["ELASTIC_FOLDER"], f"killed-{step}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def report(rank: int, size: int, weights: Sequence[Any], rows: Sequence[int], logits: Any) -> None:
    """Print the report, if this is the end of a script; ``logits`` are of all digits."""
    flat = [float(value) for array in weights for value in array.ravel()]
    accuracy = float((logits.argmax(axis=1) == digits()[1]).mean())
    words = {"size": size, "rank": rank, "weights": flat, "rows": list(rows), "accuracy": accuracy}
    sys.stdout.write(json.dumps(words) + "\n")


def reports_of(script: Path, folder: Path, launcher: Sequence[str]) -> tuple[list[Report], str]:
    """Run the script; return its ranks' reports, and what the launcher has said."""
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
    return sorted(found, key=lambda each: each.rank), done.stderr


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


def check(script: Path, folder: Path) -> None:
    """Three ranks lose rank 0, get another, and lose rank 0 again; they end like one process that loses nobody."""
    job = [sys.executable, "-m", "ciranda.launch.cli", "run", "--elastic", "--min-np", "2", "--no-prefix"]
    (alone,), _ = reports_of(script, folder, [])
    left, said = reports_of(script, folder, [*job, "-np", str(N_RANKS)])
    assert {each.name for each in folder.iterdir()} == {f"killed-{step}" for step in FAILING_STEPS}
    assert len(left) in (2, 3), "the last one joins if it is ready before the end"
    assert [(each.rank, each.size) for each in left] == [(rank, len(left)) for rank in range(len(left))]
    assert not re.search(r"world [1-9]\d*: \d ranks$", said, re.MULTILINE), "a world was left without a reason"
    assert alone.accuracy > 0.5, "it has learnt nothing"
    for each in left:
        assert each.rows == alone.rows == list(range(N_STEPS * BATCH)), "each row was used once"
        assert each.weights == left[0].weights, "the ranks differ"
        for weight, expected in zip(each.weights, alone.weights, strict=True):
            assert abs(weight - expected) <= 2e-5 * max(1.0, abs(expected))
        assert abs(each.accuracy - alone.accuracy) < 2 / len(digits()[1])
