"""tf.data's service: two jobs, of which one prepares the data of the other."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

CODE = """
import sys
import tensorflow as tf
import ciranda
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
dataset = tf.data.Dataset.range(24).batch(2)
if config.dispatcher_side == "compute":
    dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)
    rows = [int(x) for batch in dataset for x in batch]
else:
    with tf_data_service(config, hvd.rank()) as address:
        service = tf.data.experimental.service.distribute("distributed_epoch", address, job_name="job")
        rows = [int(x) for batch in dataset.apply(service) for x in batch]
print("ROWS", *rows, flush=True)
ciranda.barrier()
if hvd.rank() == 0:
    config.compute_client().shutdown()
"""


def _start(*arguments: str) -> subprocess.Popen[str]:
    launcher = [sys.executable, "-m", "ciranda.launch.cli"]
    command = [*launcher, "run", "-np", "2", "--no-prefix", sys.executable, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(
    ("side", "n_dispatchers"), [("compute", 1), pytest.param("training", 2, marks=pytest.mark.slow)]
)
def test_each_row_reaches_one_of_the_training_processes(tmp_path: Path, side: str, n_dispatchers: int) -> None:
    file = str(tmp_path / "service.json")
    worker = "horovod.tensorflow.data.compute_worker"
    options = ["--dispatchers", str(n_dispatchers), "--dispatcher-side", side]
    service = _start("-m", worker, file, *options)
    training = _start("-c", CODE, file)
    said = training.communicate(timeout=120)[0]
    assert training.returncode == 0, said
    ended = service.communicate(timeout=60)[0]
    assert service.returncode == 0, ended
    rows = Counter(int(row) for line in said.splitlines() if line.startswith("ROWS") for row in line.split()[1:])
    # One dispatcher shares a pass among all; each of two prepares all for its own process.
    assert rows == dict.fromkeys(range(24), n_dispatchers)
    assert Path(file).stat().st_mode & 0o077 == 0
