"""Starting the programs as users do, and reading what their ranks report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

PROGRAMS = Path(__file__).parent / "programs"
BIN = Path(sys.executable).parent
N_RANKS = 2

sys.path.insert(0, str(PROGRAMS))
import common  # noqa: E402

LAUNCHERS = {
    "ciranda run": [str(BIN / "ciranda"), "run", "-np", str(N_RANKS), sys.executable],
    "horovodrun": [str(BIN / "horovodrun"), "-np", str(N_RANKS), sys.executable],
    "torchrun": [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(N_RANKS)],
    "accelerate launch": [str(BIN / "accelerate"), "launch", "--cpu", "--num_processes", str(N_RANKS), "--num_machines",
                          "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"],
    "nothing": [sys.executable],
}  # fmt: skip

# Of launchers around this process, and of Slurm's allocation around a job, which Lightning would take for its own.
_FOREIGN = ("CIRANDA_", "HOROVOD_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_")


@dataclass
class Job:
    """How a job ended, and what its ranks reported, by rank."""

    exit_code: int
    errors: str
    reports: dict[int, dict[str, Any]]


def run(launcher: str, program: str, folder: Path, *, n_ranks: int = N_RANKS, **options: str) -> Job:
    """Run one of the programs. `options` become its own; `environ_...` become variables."""
    folder.mkdir(exist_ok=True)
    arguments = ["--report", str(folder), "--batch-size", str(common.GLOBAL_BATCH // n_ranks)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CIRANDA_START_TIMEOUT": "120"}
    for name, value in options.items():
        if name.startswith("environ_"):
            environ[name.removeprefix("environ_")] = value
        else:
            arguments += [f"--{name.replace('_', '-')}", value]
    command = [*LAUNCHERS[launcher], str(PROGRAMS / f"with_{program}.py"), *arguments]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    sys.stderr.write(done.stderr)
    reports = {int(path.stem): json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    return Job(done.returncode, done.stderr, reports)


def run_losing_one(program: str, folder: Path) -> list[str]:
    """Run one of the elastic programs on three ranks, of which one is killed; return the lines of their output."""
    job = [str(BIN / "ciranda"), "run", "--elastic", "-np", "3", "--min-np", "2", "--no-prefix", sys.executable]
    command = [*job, str(PROGRAMS / f"elastic_{program}.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("has failed: killed by SIGKILL") == 1
    return done.stdout.splitlines()


def global_batches(job: Job) -> list[list[int]]:
    """Which samples the ranks had together, step by step; no two ranks have one sample in common."""
    batches = []
    for parts in zip(*(job.reports[rank]["steps"] for rank in sorted(job.reports)), strict=True):
        assert len({len(part) for part in parts}) == 1
        together = [sample for part in parts for sample in part]
        assert len(set(together)) == common.GLOBAL_BATCH
        batches.append(together)
    return batches


def trained_by_one(batches: list[list[int]]) -> torch.Tensor:
    """What one process makes of the same global batches, in plain torch."""
    inputs, targets = common.samples()
    model = common.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in batches:
        optimizer.zero_grad()
        (model(inputs[batch]) - targets[batch]).square().mean().backward()
        optimizer.step()
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def parameters(job: Job, rank: int) -> torch.Tensor:
    """The trained model of a rank."""
    return torch.tensor(job.reports[rank]["parameters"], dtype=torch.float64)


def assert_trained_together(job: Job, backend: str, expected: torch.Tensor | None = None) -> None:
    """Each of the ranks was itself, had its own samples, and all came to what one process comes to."""
    assert job.exit_code == 0, job.errors
    assert sorted(job.reports) == list(range(N_RANKS))
    for rank, report in job.reports.items():
        assert (report["rank"], report["size"], report["backend"]) == (rank, N_RANKS, backend)
    batches = global_batches(job)
    assert len(batches) == common.N_STEPS
    assert sorted(sample for batch in batches for sample in batch) == list(range(common.N_SAMPLES))
    assert torch.equal(parameters(job, 0), parameters(job, 1))
    alone = trained_by_one(batches) if expected is None else expected
    torch.testing.assert_close(parameters(job, 0), alone, rtol=1e-12, atol=1e-12)
