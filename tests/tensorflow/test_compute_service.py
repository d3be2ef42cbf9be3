"""tf.data's service: a job prepares the data of the world."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import tf_work
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("side", ["compute", pytest.param("training", marks=pytest.mark.slow)])
def test_each_row_reaches_one_of_the_training_processes(world: Ranks, tmp_path: Path, side: str) -> None:
    file = str(tmp_path / "service.json")
    n_dispatchers = 1 if side == "compute" else world.n_ranks
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(n_dispatchers), sys.executable]
    worker = ["-m", "horovod.tensorflow.data.compute_worker", file]
    options = ["--dispatchers", str(n_dispatchers), "--dispatcher-side", side]
    with subprocess.Popen([*launch, *worker, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as service:
        try:
            rows = Counter(row for found in world.run(tf_work.rows_of_service, file) for row in found)
            ended = service.communicate(timeout=60)[0]
        finally:
            service.terminate()
    assert service.returncode == 0, ended
    # One dispatcher shares a pass among all; each of several prepares all for its own process.
    assert rows == dict.fromkeys(range(24), n_dispatchers)
    assert Path(file).stat().st_mode & 0o077 == 0
