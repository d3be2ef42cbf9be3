"""A program of torch.distributed over the backend ciranda: `python distributed.py DEVICE...`.

For each device, `cpu` or `cuda=SEED,WAY`, the ranks form a world, and each prints what it came to; on the fake GPU,
whose operations are delayed by the seed, that must be what it is on the CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import ciranda.torch.distributed

dist: Any = torch.distributed
DEVICE = "cpu"


def digest(tensors: Iterable[torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(each.detach().cpu().numpy().tobytes() for each in tensors)).hexdigest()[:16]


def another_stream() -> AbstractContextManager[Any]:
    return torch.cuda.stream(torch.cuda.Stream()) if DEVICE == "cuda" else nullcontext()


def collectives() -> list[object]:
    rank, size = dist.get_rank(), dist.get_world_size()
    found: list[object] = []
    mine = torch.arange(6.0, device=DEVICE) + rank
    dist.all_reduce(mine)
    gathered = [torch.empty(3, 2, device=DEVICE) for _ in range(size)]
    dist.all_gather(gathered, (mine.reshape(2, 3) * rank).t())
    scattered = torch.empty(3, device=DEVICE)
    dist.reduce_scatter_tensor(scattered, torch.arange(6.0, device=DEVICE))
    exchanged = torch.empty(4, device=DEVICE)
    dist.all_to_all_single(exchanged, torch.arange(4.0, device=DEVICE) + 10 * rank)
    received = torch.zeros(3, device=DEVICE)
    dist.recv(received, 0) if rank else dist.send(torch.ones(3, device=DEVICE), 1)
    for tensor in (mine, *gathered, scattered, exchanged, received):
        assert tensor.device.type == DEVICE
        found.append(tensor.tolist())
    return found


def futures() -> list[object]:
    """On streams that wait for nothing but the future, or for the work that another thread has finished."""
    found: list[object] = []
    for turn in range(3):
        with another_stream():
            mine = torch.full((30, 40), float(dist.get_rank() + turn), device=DEVICE)
            work = dist.all_reduce(mine.t(), async_op=True)  # whose result is copied back
            future = work.get_future()
            doubled = future.then(lambda done: done.value()[0] * 2)
            with another_stream():
                while not future.done():
                    time.sleep(0.001)
                work.wait()
                found.append(mine.sum().item())
            with another_stream():
                found.append(doubled.wait().sum().item())
                future.wait()
                found.append(mine.sum().item())
    return found


def messages() -> list[object]:
    """Both ways at once, waited for on another stream."""
    rank = dist.get_rank()
    sent, received = torch.arange(5.0, device=DEVICE) + rank, torch.zeros(5, device=DEVICE)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)])
    with another_stream():
        for work in works:
            work.wait()
        return [received.tolist()]


def distributed_tensors() -> list[object]:
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    whole = torch.arange(12.0, device=DEVICE).view(6, 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    product = sharded @ sharded.T.redistribute(placements=[Replicate()])
    return [product.to_local().tolist(), product.full_tensor().tolist(), sharded.sum().full_tensor().tolist()]


def profiled() -> list[object]:
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        dist.all_reduce(torch.ones(3, device=DEVICE))
    names: list[object] = [event.name for event in taken.events() if event.is_async]
    assert "ciranda:all_reduce" in names, names
    return names


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 4)).to(DEVICE)


def _train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 10, generator=generator).to(DEVICE)).square().sum().backward()
        optimizer.step()


def data_parallel(*, hooked: bool, views: bool) -> str:
    model = DistributedDataParallel(_model(), gradient_as_bucket_view=views, bucket_cap_mb=0.0005)
    if hooked:
        model.register_comm_hook(None, ciranda.torch.distributed.ddp_comm_hook)
    _train(model)
    return digest(model.parameters())


def sharded() -> str:
    model: Any = _model()
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    _train(model)
    return digest(parameter.full_tensor() for parameter in model.parameters())


def run() -> list[object]:
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["CIRANDA_LOCAL_RANK"]))
    found: list[object] = [collectives(), futures(), messages(), distributed_tensors(), profiled(), sharded()]
    return found + [data_parallel(hooked=hooked, views=views) for hooked in (False, True) for views in (False, True)]


def main() -> None:
    global DEVICE
    for each in sys.argv[1:]:
        DEVICE, _, how = each.partition("=")
        seed, _, os.environ["CIRANDA_GPU_WAY"] = how.partition(",")
        if seed:
            ctypes.CDLL("libcuda.so.1").fake_cuda_set(b"FAKE_CUDA_DELAY_SEED", seed.encode())
        dist.init_process_group("ciranda")
        sys.stdout.write(f"FOUND {each} {dist.get_rank()} {run()}\n")
        sys.stdout.flush()
        dist.destroy_process_group()
        ciranda.shutdown()


if __name__ == "__main__":
    main()
