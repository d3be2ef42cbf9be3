"""The program of docs/guide/paddle.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "paddle.md"

pytestmark = pytest.mark.multiprocess


def test_the_page_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    script = tmp_path / "train.py"
    script.write_text(found[1])
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(
        launch, check=False, capture_output=True, text=True, timeout=150, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
