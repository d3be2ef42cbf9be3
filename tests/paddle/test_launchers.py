"""Under Paddle's launcher the ranks form one world, and under ours programs that use Paddle's own collectives do."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

OURS = """
import ciranda.paddle as hvd
import paddle
hvd.init()
x = hvd.allreduce_sum(paddle.to_tensor([float(hvd.rank() + 1)]), name="x")
with open(f"{folder}/{{hvd.rank()}}", "w") as said:
    print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), float(x.sum()), file=said)
"""

THEIRS = """
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
fleet.init(is_collective=True)
x = paddle.to_tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
with open(f"{folder}/{{dist.get_rank()}}", "w") as said:
    print(dist.get_rank(), dist.get_world_size(), float(x.sum()), file=said)
"""


def _run(command: list[str], script: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = folder / "train.py"
    path.write_text(script.format(folder=folder))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CIRANDA_", "PADDLE_"))}
    return subprocess.run(
        [sys.executable, "-m", *command, str(path)],
        check=False, capture_output=True, text=True, timeout=150, cwd=folder, env={**clean, **env},
    )  # fmt: skip


def _said(folder: Path) -> list[str]:
    return [(folder / str(rank)).read_text().strip() for rank in range(2)]


LAUNCH = ["paddle.distributed.launch", "--nproc_per_node", "2"]


def test_init_joins_under_paddles_launcher(tmp_path: Path, environment: dict[str, str]) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    done = _run(LAUNCH, OURS, tmp_path, {**environment, "CIRANDA_SECRET_FILE": str(secret)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert _said(tmp_path) == ["0 2 0 2 3.0", "1 2 1 2 3.0"]


def test_init_says_how_to_make_a_secret(tmp_path: Path, environment: dict[str, str]) -> None:
    done = _run(LAUNCH, OURS, tmp_path, environment)
    assert done.returncode != 0
    logs = "".join(path.read_text() for path in (tmp_path / "log").glob("workerlog.*"))
    assert "openssl rand -hex 32" in logs, logs
    assert not (tmp_path / "0").exists()


def test_paddles_own_collectives_work_under_ours(tmp_path: Path, environment: dict[str, str]) -> None:
    done = _run(["ciranda.launch.cli", "run", "-np", "2", sys.executable], THEIRS, tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _said(tmp_path) == ["0 2 3.0", "1 2 3.0"]
