"""Two hundred tests, each in a world of its own. test_horovodrun.py runs this in every rank."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    hvd.init()
    hvd.barrier()
    yield
    hvd.shutdown()
    assert not hvd.is_initialized()


@pytest.mark.parametrize("number", range(40))
def test_who_we_are(number: int) -> None:
    assert hvd.size() == int(os.environ["HOROVOD_SIZE"])
    assert hvd.rank() == int(os.environ["HOROVOD_RANK"])
    assert hvd.local_rank() == int(os.environ["HOROVOD_LOCAL_RANK"])


@pytest.mark.parametrize("number", range(40))
def test_allreduce(number: int) -> None:
    """Another size, but the same name, in every world: nothing is left of the last one."""
    tensor = torch.full((number + 1,), float(hvd.rank() + number))
    expected = sum(rank + number for rank in range(hvd.size()))
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum, name="x"), torch.full((number + 1,), float(expected)))


@pytest.mark.parametrize("number", range(40))
def test_allgather(number: int) -> None:
    rows = hvd.allgather(torch.full((hvd.rank() + 1, 2), hvd.rank()), name="x")
    assert rows[:, 0].tolist() == [rank for rank in range(hvd.size()) for _ in range(rank + 1)]


@pytest.mark.parametrize("number", range(40))
def test_disagreement(number: int) -> None:
    """An error in one world does not reach the next."""
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(number + 1 + hvd.rank()), name="x")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="y").item() == hvd.size()


@pytest.mark.parametrize("number", range(40))
def test_a_step(number: int) -> None:
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
    assert len({tuple(weights) for weights in hvd.allgather(model.weight.detach()).tolist()}) == 1
