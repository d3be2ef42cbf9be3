"""Process sets, joining, and messages between two ranks, on torch tensors."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import BATCH, Model, Share, assert_same, flat, loss_of, mlp

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess


def _check_operations(members: list[int]) -> None:
    """Every operation, and its gradient, in a set; the others do something else meanwhile."""
    chosen = hvd.add_process_set(members)
    me, n = hvd.rank(), len(members)
    if not chosen.included():
        with pytest.raises(ValueError, match="not in process set"):
            hvd.allreduce(torch.ones(2), process_set=chosen)
    else:
        place = members.index(me)
        x = torch.full((n, 2), float(me), requires_grad=True)
        total = float(sum(members))
        calls = [
            (lambda: hvd.allreduce(x, op=hvd.Sum, process_set=chosen), torch.full((n, 2), total), float(n)),
            (lambda: hvd.allreduce(x, process_set=chosen), torch.full((n, 2), total / n), 1.0),
            (lambda: hvd.allreduce(x, op=hvd.Max, process_set=chosen), torch.full((n, 2), float(max(members))), None),
            (
                lambda: hvd.grouped_allreduce([x], op=hvd.Sum, process_set=chosen)[0],
                torch.full((n, 2), total),
                float(n),
            ),
            (lambda: hvd.allgather(x, process_set=chosen), torch.tensor(members).repeat_interleave(n)[:, None], 1.0),
            (lambda: hvd.grouped_allgather([x[0]], process_set=chosen)[0], None, None),
            (lambda: hvd.broadcast(x, members[-1], process_set=chosen), torch.full((n, 2), float(members[-1])), None),
            (lambda: hvd.alltoall(x, process_set=chosen), torch.tensor(members)[:, None], 1.0),
            (lambda: hvd.reducescatter(x, op=hvd.Sum, process_set=chosen), torch.full((1, 2), total), float(n)),
        ]
        for call, expected, gradient in calls:
            x.grad = None
            result = call()
            if expected is not None:
                torch.testing.assert_close(result, expected.float().expand_as(result))
            result.sum().backward()
            if gradient is not None:
                torch.testing.assert_close(x.grad, torch.full_like(x, gradient))
        in_place = hvd.allreduce_(torch.full((3,), float(place)), process_set=chosen)
        torch.testing.assert_close(in_place, torch.full((3,), (n - 1) / 2))
        row = torch.sparse_coo_tensor([[place]], torch.ones(1, 2), (100, 2), check_invariants=False)
        result = hvd.sparse_allreduce_async(row, "sparse", hvd.Average, process_set=chosen).wait()
        assert result.indices().tolist() == [list(range(n))]
        torch.testing.assert_close(result.values(), torch.full((n, 2), 1 / n))
        layer = hvd.SyncBatchNorm(2, process_set=chosen)
        batch = torch.tensor([[1.0, 2.0]]) * (place + 1) ** 2
        whole = torch.nn.BatchNorm1d(2)(torch.cat([torch.tensor([[1.0, 2.0]]) * (i + 1) ** 2 for i in range(n)]))
        torch.testing.assert_close(layer(batch), whole[place : place + 1])
    hvd.remove_process_set(chosen)


@pytest.mark.parametrize(("n_ranks", "members"), [(3, [0, 2]), (4, [1, 2, 3]), (4, [1, 3])])
def test_operations(worlds: Any, n_ranks: int, members: list[int]) -> None:
    worlds.of(n_ranks).run(_check_operations, members)


def _train_alone(members: int = 1, part: int = 0) -> torch.Tensor:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(4):
        optimizer.zero_grad()
        loss_of(model, number, Share(part, members)).backward()
        optimizer.step()
    return flat(model)


def _train_in_set(members: list[int]) -> torch.Tensor:
    chosen = hvd.add_process_set(members)
    model = mlp()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), process_set=chosen
    )
    share = Share(members.index(hvd.rank()), len(members)) if chosen.included() else Share()
    for number in range(4):
        optimizer.zero_grad()
        loss_of(model, number, share).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    hvd.barrier()
    hvd.remove_process_set(chosen)
    return flat(model)


@pytest.mark.parametrize(("n_ranks", "members"), [(3, [0, 2]), (4, [1, 2, 3])])
def test_optimizers_in_sets(worlds: Any, n_ranks: int, members: list[int]) -> None:
    """The members do what one process does; so do the others, each for itself. fp32 to 1e-6 of the norm."""
    results = worlds.of(n_ranks).run(_train_in_set, members)
    alone = _train_alone()
    assert_same([results[rank] for rank in members], alone, 1e-6)
    for rank in set(range(n_ranks)) - set(members):
        assert torch.equal(results[rank], alone)


def _batches_of(rank: int) -> int:
    return 2 + 2 * rank


def _train_with_joining() -> torch.Tensor:
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for number in range(_batches_of(hvd.rank())):
        optimizer.zero_grad()
        loss_of(model, number, Share(hvd.rank(), hvd.size())).backward()
        optimizer.step()
    last = hvd.join()
    assert last == hvd.size() - 1
    hvd.broadcast_parameters(model.state_dict(), last)
    return flat(model)


def _joining_in_one_process(n_ranks: int) -> torch.Tensor:
    """Each step averages over the ranks that still have batches."""
    model: Model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(_batches_of(n_ranks - 1)):
        optimizer.zero_grad()
        working = [rank for rank in range(n_ranks) if number < _batches_of(rank)]
        for rank in working:
            (loss_of(model, number, Share(rank, n_ranks)) / len(working)).backward()
        optimizer.step()
    return flat(model)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_uneven_batches_with_join(worlds: Any, n_ranks: int) -> None:
    """fp32, to 1e-6 of the norm."""
    results = worlds.of(n_ranks).run(_train_with_joining)
    assert_same(results, _joining_in_one_process(n_ranks), 1e-6)


def _messages() -> None:
    rank, n = hvd.rank(), hvd.size()
    following, preceding = (rank + 1) % n, (rank - 1) % n
    sent = hvd.send_async(torch.full((BATCH, 2), float(rank)).t(), following)  # not contiguous
    received = torch.zeros(BATCH, 2).t()
    assert hvd.recv(received, preceding) is received
    assert torch.equal(received, torch.full((2, BATCH), float(preceding)))
    hvd.synchronize(sent)
    with pytest.raises(ValueError, match="no other rank"):
        hvd.send(torch.ones(1), rank)
    if rank == 0:
        hvd.send(torch.ones(3, dtype=torch.bfloat16), 1, name="named")
    elif rank == 1:
        assert hvd.recv(torch.zeros(3, dtype=torch.bfloat16), 0, name="named").sum() == 3


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_messages(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_messages)
