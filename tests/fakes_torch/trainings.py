"""Small trainings of ciranda.torch, on the CPU or the fake GPU: what they train must come to the same bits."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import ciranda.torch as hvd

_STEPS = 4


class Tied(nn.Module):
    """A model that uses a weight twice, and has one that nothing uses on rank 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = nn.Linear(6, 6)
        self.last.weight = self.first.weight
        self.extra = nn.Linear(6, 6)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(batch))
        return self.last(hidden if hvd.rank() == 1 else self.extra(hidden))


def _convolution(norm: type[nn.Module] = nn.BatchNorm2d) -> nn.Module:
    parts = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 1), norm(3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 6)]
    return nn.Sequential(*parts)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))


def _channels_last() -> nn.Module:
    return _convolution().to(memory_format=torch.channels_last)


#: The model, and the options of the optimizer.
TRAININGS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "plain": (_convolution, {}),
    "tied": (Tied, {}),
    "buckets": (_channels_last, {"gradient_as_bucket_view": True}),
    "groups": (_mlp, {"groups": 2}),
    "float16": (_mlp, {"compression": hvd.Compression.fp16}),
    "passes": (_mlp, {"backward_passes_per_step": 2}),
    "predivided": (_mlp, {"gradient_predivide_factor": 4.0}),
    "sum": (_mlp, {"op": hvd.Sum}),
    "adasum": (_mlp, {"op": hvd.Adasum}),
    "synchronized statistics": (lambda: _convolution(hvd.SyncBatchNorm), {}),
    "overlapped": (_mlp, {"overlap_forward": None}),
}


def n_synchronizations() -> int:
    """How often torch's operators have let the host of this process wait for a stream of the fake GPU, until now."""
    return int(ctypes.CDLL("libcuda.so.1").fake_cuda_n_calls_of(b"cuStreamSynchronize"))


def train(name: str, device: str) -> str:
    """Train, and return a digest of the parameters and the optimizer's state."""
    make, options = TRAININGS[name]
    torch.manual_seed(hvd.rank())  # ranks begin apart
    model = make().to(device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if "overlap_forward" in options:
        options = {"overlap_forward": model}
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    generator = torch.Generator().manual_seed(100 + hvd.rank())
    passes = options.get("backward_passes_per_step", 1)
    for number in range(_STEPS):
        optimizer.zero_grad()
        batches = [torch.randn(3, 6, generator=generator).to(device) for _ in range(passes)]
        n_before = n_synchronizations()
        for batch in batches:
            model(batch).square().sum().backward()
        optimizer.step()
        if number > 0:  # the first step compares the ranks' parameters
            assert n_synchronizations() == n_before, f"{name}: the host waited for the GPU"
    tensors = [*model.state_dict().values(), *_tensors(optimizer.state_dict())]
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)


def all_trainings(devices: list[str]) -> dict[str, str]:
    """Train each on this rank's device; return the digests."""
    return {name: train(name, devices[hvd.rank()]) for name in TRAININGS}
