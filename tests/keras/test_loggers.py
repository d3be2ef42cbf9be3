"""The example for Keras' loggers: the counters of all ranks are among what rank 0 logs."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.multiprocess

EXAMPLE = Path(__file__).parents[2] / "examples" / "loggers" / "with_keras.py"


def test_counters_are_logged(tmp_path: Path) -> None:
    launcher = str(Path(sys.executable).with_name("ciranda"))
    subprocess.run([launcher, "run", "-np", "2", sys.executable, str(EXAMPLE), str(tmp_path)], check=True)
    with (tmp_path / "log.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 2
    assert 0 < float(rows[0]["ciranda/calls/min"]) < float(rows[1]["ciranda/calls/min"])
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
