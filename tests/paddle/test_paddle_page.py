"""The program of docs/guide/paddle.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "paddle.md"
EXAMPLE = ROOT / "examples" / "paddle" / "digits.py"

pytestmark = pytest.mark.multiprocess


def test_the_page_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    script = tmp_path / "train.py"
    script.write_text(found[1])
    _launched(2, [str(script)], environment)


def _launched(n_ranks: int, arguments: list[str], environment: dict[str, str]) -> str:
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(n_ranks), sys.executable, *arguments]
    done = subprocess.run(
        launch, check=False, capture_output=True, text=True, timeout=150, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("way", "n_ranks"),
    [
        pytest.param("gradients", 4, marks=pytest.mark.slow),
        pytest.param("parameters", 3, marks=pytest.mark.slow),
        ("classes", 2),
    ],
)
def test_the_example_trains_as_one_process(way: str, n_ranks: int, environment: dict[str, str]) -> None:
    """50 steps of a convolutional network, by programs."""
    said = _launched(n_ranks, [str(EXAMPLE), "--way", way], environment)
    assert f"{way}: {n_ranks} processes train as one does" in said, said
