"""The examples of the guide's page run; and the doctor sees the binding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import examples

pytestmark = pytest.mark.multiprocess


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    """One after the other in the same processes, which take seconds to load TensorFlow."""
    found = [each for each in examples() if each.page == "docs/guide/tensorflow.md"]
    assert [each.np for each in found] == [2, 2]
    for number, example in enumerate(found):
        (tmp_path / f"example_{number}.py").write_text(example.code, encoding="utf-8")
    script = tmp_path / "all.py"
    script.write_text("import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path)\n", encoding="utf-8")
    paths = [str(tmp_path / f"example_{number}.py") for number in range(len(found))]
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, str(script), *paths]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # it loads every framework that there is
def test_the_doctor_sees_the_binding() -> None:
    from ciranda.doctor.bindings import bindings

    (found,) = [each for each in bindings() if "tensorflow" in each.name]
    assert (found.status, found.advice) == ("ok", ""), found
    assert "all symbols found" in found.found
    assert "also in compiled functions" in found.found
