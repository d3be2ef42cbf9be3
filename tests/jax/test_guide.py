"""The Python of docs/guide/jax.md runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "jax.md"

pytestmark = pytest.mark.multiprocess


def test_the_page_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)))
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_example_trains() -> None:
    pytest.importorskip("sklearn")
    example = str(PAGE.parents[2] / "examples" / "jax" / "digits.py")
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, example, "--epochs", "3"]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the parameters of all 2 ranks are the same bits" in done.stdout
