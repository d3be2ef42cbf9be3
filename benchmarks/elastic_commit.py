"""The time of a commit of a torch state, beside a memcpy of the same memory and a deepcopy.

    python benchmarks/elastic_commit.py

In turns, the best of each; and the page faults of all commits after the second, which are none if nothing is allocated.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from ciranda.torch.elastic import TorchState

N_LAYERS = 8
N_ARRAYS = 3 * N_LAYERS  # weights, and Adam's two averages of each


def _state(n_bytes: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, TorchState]:
    """A state of so much memory, after a step, so that the optimizer has its part."""
    width = round((n_bytes / 4 / N_ARRAYS) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(N_LAYERS)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    return model, optimizer, TorchState(model, optimizer, step=0)


def _pairs(content: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of a state dictionary, each with a copy."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def visit(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append((value, value.detach().clone()))
        elif isinstance(value, (dict, list)):
            for each in value.values() if isinstance(value, dict) else value:
                visit(each)

    visit(content)
    return found


def _memcpy(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for source, target in pairs:
        ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, optimizer, state = _state(int(args.megabytes * 1e6))
    content = [model.state_dict(), optimizer.state_dict()["state"]]
    pairs = _pairs(content)
    calls: dict[str, Callable[[], object]] = {
        "memcpy": lambda: _memcpy(pairs),
        "commit": state.save,
        "deepcopy": lambda: copy.deepcopy(content),
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(2):
        state.save()
    n_faults = 0
    for _ in range(args.rounds):
        for name, call in calls.items():
            before = _faults()
            best[name] = min(best[name], _seconds(call))
            n_faults += _faults() - before if name == "commit" else 0
    n_bytes = sum(source.nbytes for source, _ in pairs)
    print(
        f"{n_bytes / 1e6:.0f} MB: memcpy {best['memcpy'] * 1e3:.1f} ms, commit {best['commit'] * 1e3:.1f} ms "
        f"({best['commit'] / best['memcpy']:.2f}), deepcopy {best['deepcopy'] * 1e3:.1f} ms "
        f"({best['deepcopy'] / best['memcpy']:.2f}); {n_faults} page faults in {args.rounds} commits"
    )


if __name__ == "__main__":
    main()
