"""The examples of the guide's page about Keras, and the script in examples/keras, run on the backend that is chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import Example, examples

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.multiprocess


def run(script: Path, np: int) -> str:
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(np), sys.executable, str(script)]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("example", [one for one in examples() if one.page == "docs/guide/keras.md"], ids=str)
def test_example_of_the_page(example: Example, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example.code, encoding="utf-8")
    run(script, example.np)


def test_digits_equal_one_process() -> None:
    assert "on 2 processes" in (said := run(ROOT / "examples" / "keras" / "digits.py", 2))
    assert "same as one process" in said
