"""The examples for loggers: what rank 0 has logged is read by the loggers' own readers."""

from __future__ import annotations

import csv
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import LAUNCHERS

EXAMPLES = Path(__file__).parents[2] / "examples" / "loggers"
STEPS = [(10, 10.0), (20, 20.0), (30, 30.0)]


def _run(logger: str, folder: Path) -> None:
    command = [*LAUNCHERS["ciranda run"], str(EXAMPLES / f"with_{logger}.py"), str(folder)]
    environ = {**os.environ, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1", "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = subprocess.run(command, env=environ, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _run("tensorboard", tmp_path / "log")
    (file,) = (tmp_path / "log").iterdir()  # of one rank
    found = EventAccumulator(str(file))
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("ciranda/steps/max")] == STEPS
    assert len(found.Scalars("ciranda/allreduce/bytes/mean")) == len(STEPS)


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    _run("mlflow", tmp_path / "log")
    client = MlflowClient((tmp_path / "log").as_uri())
    (run,) = client.search_runs(["0"])
    history = client.get_metric_history(run.info.run_id, "ciranda/steps/max")
    assert [(each.step, each.value) for each in history] == STEPS


def _records(raw: bytes) -> Iterator[bytes]:
    """What a file of W&B's has, a log as LevelDB's: pieces in blocks of 32 KiB, each with checksum, length and kind."""
    at, record = len(b":W&B") + 3, b""
    while at + 7 <= len(raw):
        rest = 32768 - at % 32768
        if rest < 7:  # no piece begins so close to the end of a block
            at += rest
            continue
        _, n_bytes, kind = struct.unpack_from("<IHB", raw, at)
        record += raw[at + 7 : at + 7 + n_bytes]
        at += 7 + n_bytes
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def test_wandb(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    (tmp_path / "log").mkdir()
    _run("wandb", tmp_path / "log")
    (file,) = (tmp_path / "log").rglob("*.wandb")
    found = []
    for each in _records(file.read_bytes()):
        history = wandb_internal_pb2.Record.FromString(each).history
        items = {item.key or "/".join(item.nested_key): item.value_json for item in history.item}
        if "ciranda/steps/max" in items:
            found.append((history.step.num, float(items["ciranda/steps/max"])))
    assert found == STEPS


def test_lightning(tmp_path: Path) -> None:
    _run("lightning", tmp_path / "log")
    (file,) = (tmp_path / "log").rglob("metrics.csv")
    with file.open(encoding="utf-8", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["ciranda/allreduce/calls/max"]]
    assert [int(row["step"]) for row in rows] == [32, 64]
    assert float(rows[0]["ciranda/allreduce/calls/max"]) < float(rows[1]["ciranda/allreduce/calls/max"])
