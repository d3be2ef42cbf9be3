"""What the programs share: the data, the options, and the report by which a test sees what each rank did."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

N_SAMPLES, N_FEATURES, N_STEPS, GLOBAL_BATCH = 32, 6, 4, 8


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=Path, required=True, help="folder for one file a rank")
    parser.add_argument("--batch-size", type=int, required=True, help="of each rank")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--chosen-by", default="default", help="how the program asks for the backend")
    return parser.parse_args()


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, whose first feature is the number of the sample, and targets; the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(N_SAMPLES, N_FEATURES, generator=generator, dtype=torch.float64)
    inputs[:, 0] = torch.arange(N_SAMPLES)
    return inputs, torch.randn(N_SAMPLES, 1, generator=generator, dtype=torch.float64)


def model() -> torch.nn.Module:
    torch.manual_seed(2)
    layers = [torch.nn.Linear(N_FEATURES, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)]
    return torch.nn.Sequential(*layers).double()


def write_report(
    folder: Path, rank: int, size: int, steps: list[list[int]], trained: torch.nn.Module, **more: object
) -> None:
    """Which samples the rank had in each step, and what came of it. A rank that believes to be another overwrites its
    report, and then one is missing."""
    parameters = [value.flatten().tolist() for value in trained.state_dict().values()]
    flat = [value for values in parameters for value in values]
    report = {"rank": rank, "size": size, "steps": steps, "parameters": flat, **more}
    (folder / f"{rank}.json").write_text(json.dumps(report), encoding="utf-8")
