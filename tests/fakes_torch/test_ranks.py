"""Ranks whose tensors are on the fake GPU."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
import torch_cuda
from ranks import Ranks

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]


def calls_of_the_driver(name: str) -> int:
    return int(ctypes.CDLL("libcuda.so.1").fake_cuda_n_calls_of(name.encode()))


def allreduced_on_a_side_stream() -> list[float]:
    import torch

    import ciranda.torch as hvd

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        mine = torch.arange(4.0, device="cuda") + hvd.rank()
        summed = hvd.allreduce(mine, op=hvd.Sum, name="on a side stream")
        del mine
        torch.zeros(4, device="cuda")  # has the memory of the input
    torch.cuda.current_stream().wait_stream(side)
    assert summed.device == torch.device("cuda:0")
    return summed.tolist()


def test_a_collective_on_tensors_of_the_gpu() -> None:
    with Ranks(2, env={**torch_cuda.environment(), "FAKE_CUDA_DELAY_SEED": "0"}) as ranks:
        assert ranks.run(allreduced_on_a_side_stream) == [[1, 3, 5, 7]] * 2
        assert ranks.run(can_be_exported) == [True] * 2


def can_be_exported() -> bool:
    import torch

    handle = (ctypes.c_char * 64)()
    address = torch.ones(4, device="cuda").data_ptr()
    return bool(ctypes.CDLL("libcuda.so.1").cuIpcGetMemHandle(handle, ctypes.c_uint64(address)) == 0)


@pytest.mark.usefixtures("kernels_of_gpus")
def test_tensors_in_memory_that_cannot_be_exported_go_by_peer() -> None:
    """What other ranks map is the engine's."""
    memory = ("backend:cudaMallocAsync", "expandable_segments:True")
    environment = {**torch_cuda.environment(), "FAKE_CUDA_DELAY_SEED": "1"}
    with Ranks(2, env=environment, env_of=lambda rank: {"PYTORCH_CUDA_ALLOC_CONF": memory[rank]}) as ranks:
        assert ranks.run(can_be_exported) == [False] * 2
        assert ranks.run(allreduced_on_a_side_stream) == [[1, 3, 5, 7]] * 2
        assert ranks.run(calls_of_the_driver, "cuIpcOpenMemHandle") == [1] * 2
        assert ranks.run(calls_of_the_driver, "cuMemcpyDtoHAsync") == [0] * 2  # none is staged


def overflow_of_one_rank() -> list[bool]:
    """Which gradients are finite once rank 1 has told of its own; and the host has waited for no GPU to know it."""
    import torch
    import trainings

    import ciranda.torch as hvd
    from ciranda.torch.own_gradients import share_overflow

    shared, own = (torch.nn.Parameter(torch.zeros(2, device="cuda")) for _ in range(2))
    own.is_distributed = True  # type: ignore[assignment, method-assign]
    shared.grad = torch.ones(2, device="cuda")
    if hvd.rank() == 1:
        own.grad = torch.tensor([1.0, torch.inf]).cuda()
    n_before = trainings.n_synchronizations()
    share_overflow({own: "own", shared: "shared"}, hvd.global_process_set)
    assert trainings.n_synchronizations() == n_before
    return [bool(each.grad.isfinite().all()) for each in (own, shared) if each.grad is not None]


def trained_with_sparse_gradients(device: str) -> list[list[float]]:
    """Tables whose gradients have rows: few, which are gathered, and many, which are combined as dense ones."""
    import torch

    import ciranda.torch as hvd

    found = []
    for n_rows, options in ((3, {}), (40, {}), (3, {"sparse_as_dense": True})):
        torch.manual_seed(1)
        table = torch.nn.Embedding(30, 4, sparse=True).to(device)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, table.named_parameters(), **options)
        for step in range(3):
            optimizer.zero_grad()
            rows = (torch.arange(n_rows) * (3 + step) + hvd.rank()) % 30
            table(rows.to(device)).square().sum().backward()
            optimizer.step()
        found.append(table.weight.flatten().tolist())
    mine = torch.sparse_coo_tensor([[hvd.rank(), 2]], torch.tensor([0.3, 0.7]) + hvd.rank(), (4,)).to(device)
    for options in ({"op": hvd.Sum}, {"op": hvd.Average, "weight": 0.5 + hvd.rank()}):
        combined = hvd.sparse_allreduce_async(mine, "sparse", **options).wait()
        assert (combined.is_sparse, combined.device.type) == (True, device)
        found.append(combined.to_dense().tolist())
    return found


def test_trainings_on_gpus_come_to_the_bits_of_the_cpu() -> None:
    """Also where one rank has its model on the CPU. Steps let the host wait for no stream."""
    environment = torch_cuda.environment()
    environment["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"
    with Ranks(2, env={**environment, "FAKE_CUDA_DELAY_SEED": "3"}) as ranks:

        def trained(*devices: str) -> list[dict[str, str]]:
            return ranks.run(trainings_on, list(devices))

        on_cpu = trained("cpu", "cpu")
        assert trained("cuda", "cuda") == on_cpu
        assert trained("cuda", "cpu") == on_cpu
        with_sparse = ranks.run(trained_with_sparse_gradients, "cpu")
        assert ranks.run(trained_with_sparse_gradients, "cuda") == with_sparse
        assert ranks.run(overflow_of_one_rank) == [[False], [False, True]]
        for of_cpu, of_gpu in zip(ranks.run(normalized, "cpu"), ranks.run(normalized, "cuda"), strict=True):
            for mine, other in zip(of_cpu, of_gpu, strict=True):
                assert other == pytest.approx(mine, rel=0.02, abs=0.02)


def normalized(device: str) -> list[list[float]]:
    """What SyncBatchNorm makes of bfloat16 in another order of memory, forward and backward."""
    import torch

    import ciranda.torch as hvd

    layer = hvd.SyncBatchNorm(3).to(device)
    generator = torch.Generator().manual_seed(hvd.rank())
    made = torch.randn(2 + hvd.rank(), 3, 4, 5, generator=generator).to(device, torch.bfloat16)
    batch = made.to(memory_format=torch.channels_last).requires_grad_()
    found = layer(batch)
    assert found.dtype == batch.dtype
    (found.float() * torch.arange(found.numel(), device=device).reshape(found.shape).sin()).sum().backward()
    assert batch.grad is not None
    tensors = [found.detach(), batch.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var]
    return [each.float().cpu().flatten().tolist() for each in tensors]


def trainings_on(devices: list[str]) -> dict[str, str]:
    import trainings

    return trainings.all_trainings(devices)
