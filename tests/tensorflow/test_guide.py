"""The examples of the guide's page run; and the doctor sees the binding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import Example, examples

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("example", [each for each in examples() if each.page == "docs/guide/tensorflow.md"], ids=str)
def test_example_runs(example: Example, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example.code, encoding="utf-8")
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(example.np), sys.executable, str(script)]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_doctor_sees_the_binding() -> None:
    from ciranda.doctor.bindings import bindings

    (found,) = [each for each in bindings() if "tensorflow" in each.name]
    assert (found.status, found.advice) == ("ok", ""), found
    assert "all symbols found" in found.found
    assert "also in compiled functions" in found.found
