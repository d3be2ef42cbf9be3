"""Programs that make their tensors on another device by default: what ranks tell each other lies in host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import nn

import ciranda.torch as hvd
from ciranda.torch.local_sgd import LocalOptimizer
from ciranda.torch.nn import ShardedLinear, sharded_softmax_cross_entropy

pytestmark = pytest.mark.multiprocess

# Tensors on it have no data: most of what is made there by mistake is refused when it is used.
_ELSEWHERE = "meta"

_WRAPPERS: dict[str, Callable[..., Any]] = {
    "plain": hvd.DistributedOptimizer,
    "bucket_view": lambda *args, **kwargs: hvd.DistributedOptimizer(*args, gradient_as_bucket_view=True, **kwargs),
    "closure": lambda optimizer, named_parameters: hvd.DistributedOptimizer(
        torch.optim.LBFGS(optimizer.param_groups[0]["params"], lr=0.1, max_iter=2), named_parameters
    ),
    "adasum": lambda *args, **kwargs: hvd.DistributedOptimizer(*args, op=hvd.Adasum, **kwargs),
    "unnamed": lambda optimizer, named_parameters: hvd.DistributedOptimizer(optimizer),
    "local_sgd": lambda *args, **kwargs: hvd.LocalSGD(*args, k=2, adaptive=True, max_k=2, **kwargs),
}


def _train(wrap: Callable[..., Any], device: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    is_sparse = wrap is hvd.DistributedOptimizer
    model = nn.Sequential(nn.Embedding(8, 4, sparse=is_sparse), nn.Flatten(), nn.Linear(8, 2))
    batches = [torch.tensor([[hvd.rank(), 2], [3, step + hvd.rank()]]) for step in range(4)]
    with torch.device(device):
        sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.0 if is_sparse else 0.9)
        optimizer = wrap(sgd, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)

        def loss_of(batch: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(batch).square().sum()
            loss.backward()
            return loss

        for batch in batches:
            if isinstance(optimizer, torch.optim.LBFGS):
                optimizer.step(lambda batch=batch: float(loss_of(batch)))
                continue
            loss = loss_of(batch)
            optimizer.step()
            if isinstance(optimizer, LocalOptimizer):
                optimizer.report_loss(loss)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return {name: value.clone() for name, value in model.state_dict().items()}


def _check_optimizers(wrapper: str) -> None:
    wanted, found = (_train(_WRAPPERS[wrapper], device) for device in ("cpu", _ELSEWHERE))
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("wrapper", _WRAPPERS)
def test_training(worlds: Any, wrapper: str) -> None:
    worlds.of(2).run(_check_optimizers, wrapper)


def _calls(device: str) -> list[torch.Tensor]:
    rank = hvd.rank()
    rows = torch.arange(4.0).reshape(4, 1) + rank
    sparse = torch.sparse_coo_tensor(torch.tensor([[rank, 2]]), torch.ones(2, 3), (5, 3))
    norm = hvd.SyncBatchNorm(2)
    batch = torch.arange(8.0).reshape(4, 2) + rank
    leaves = [torch.ones(3, requires_grad=True), torch.ones(2, 4, requires_grad=True)]
    labels = torch.tensor([rank, 9])
    weight = torch.linspace(-1, 1, 40).reshape(10, 4)
    with torch.device(device):
        layer = ShardedLinear(4, 10, sample_rate=0.5, sparse=True)
        layer.load_dense(weight)
        received, counts = hvd.alltoall(rows, splits=[1, 3] if rank == 0 else [2, 2])
        summed = hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Sum)()
        gathered, unused = hvd.grouped_allgather([leaves[0], 2 * leaves[0]])
        loss = sharded_softmax_cross_entropy(leaves[1], labels, layer)
        logits = layer(leaves[1])
        for result in (norm(batch), gathered, loss, logits):
            result.sum().backward()
        said = [hvd.broadcast_object({"rank": rank}, root_rank=1)["rank"], *hvd.allgather_object(rank)]
        hvd.barrier()
    gradients = [each.grad for each in (*leaves, layer.weight, norm.weight) if each.grad is not None]
    assert len(gradients) == 4
    dense = [each.to_dense() for each in (summed, *gradients)]
    assert norm.running_mean is not None
    return [received, counts, unused, loss, logits, norm.running_mean, torch.tensor(said), *dense]


def _check_calls() -> None:
    for nth, (wanted, found) in enumerate(zip(_calls("cpu"), _calls(_ELSEWHERE), strict=True)):
        assert torch.equal(found, wanted), nth


def test_calls(worlds: Any) -> None:
    worlds.of(2).run(_check_calls)


def _check_backend() -> None:
    import ciranda.torch.distributed  # noqa: F401

    n, rank = hvd.size(), hvd.rank()
    row = torch.full((1, 3), float(rank))
    rows, summed, uneven = torch.empty(n, 3), torch.full((3,), float(rank)), torch.empty(3, 3)
    parts = [torch.empty(1, 3) for _ in range(n)]
    sparse = torch.sparse_coo_tensor(torch.tensor([[rank]]), torch.ones(1, 2), (n, 2))
    model = nn.Linear(3, 1)
    dist.init_process_group("ciranda")
    try:
        with torch.device(_ELSEWHERE):
            dist.all_gather_into_tensor(rows, row)
            dist.all_gather(parts, row)
            dist.all_reduce(summed)
            dist.all_reduce(sparse)
            dist.all_to_all_single(uneven, row.expand(3, 3).contiguous(), [1 + rank, 2 - rank], [1 + rank, 2 - rank])
            dist.barrier()
            replica = nn.parallel.DistributedDataParallel(model)
            replica(row).sum().backward()
    finally:
        dist.destroy_process_group()
    assert rows[:, 0].tolist() == [each[0, 0].item() for each in parts] == list(range(n))
    assert summed.tolist() == [1.0] * 3
    assert sparse.to_dense().tolist() == [[1.0] * 2] * n
    assert uneven[:, 0].tolist() == [0.0] * (1 + rank) + [1.0] * (2 - rank)
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[0.5] * 3]


def test_torch_distributed(worlds: Any) -> None:
    worlds.of(2).run(_check_backend)
