"""The Python of docs/guide/mxnet.md and the examples run, as they stand there and as scripts of Horovod."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_TURN = ROOT / "tests" / "multiprocess" / "in_turn.py"

pytestmark = pytest.mark.multiprocess


def _program(script: str) -> str:
    """Return a script without its first string, which says how it is started."""
    return ast.unparse(ast.parse(script).body[1:])


def test_the_page_and_the_examples_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guide" / "mxnet.md").read_text(encoding="utf-8")
    scripts = {"page": "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))}
    for path in sorted((ROOT / "examples" / "mxnet").glob("*.py")):
        scripts[path.stem] = path.read_text(encoding="utf-8")
        horovod = ROOT / "examples" / "horovod" / f"mxnet_{path.name}"
        scripts[f"{path.stem}_horovod"] = horovod.read_text(encoding="utf-8")
        assert _program(scripts[f"{path.stem}_horovod"]) == _program(scripts[path.stem]).replace("ciranda", "horovod")
    for path in sorted((Path(__file__).parent / "scripts").glob("*.py")):
        scripts[f"{path.stem}_script"] = path.read_text(encoding="utf-8")
    for name, script in scripts.items():
        (tmp_path / f"{name}.py").write_text(script)
    launch = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "ciranda.launch.cli",
        "run",
        "-np",
        "2",
        sys.executable,
        "-W",
        "ignore",
    ]
    launch += [str(IN_TURN), *(str(tmp_path / f"{name}.py") for name in scripts)]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.count("the parameters of all 2 ranks are the same bits") == 2
    assert done.stdout.count("images a second on 2 ranks") == 2
    assert all(f"{name} script: accuracy" in done.stdout for name in ("gluon", "module"))
