"""The torch interface over real processes: what is not in tests/frameworks, nor in NumPy's tests."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

SIZES = pytest.mark.parametrize("n_ranks", [2, 3])


def _check_complex() -> None:
    n, rank = hvd.size(), hvd.rank()
    inputs = [torch.complex(torch.full((5,), r + 1.0), torch.arange(5.0) - r) for r in range(n)]
    total = torch.stack(inputs).sum(dim=0)
    assert torch.equal(hvd.allreduce(inputs[rank], op=hvd.Sum), total)
    torch.testing.assert_close(hvd.allreduce(inputs[rank], op=hvd.Product), torch.stack(inputs).prod(dim=0))
    lazy = inputs[rank].clone().conj()
    assert lazy.is_conj()
    assert torch.equal(hvd.allreduce(lazy, op=hvd.Sum), total.conj())
    assert hvd.allreduce_(lazy, op=hvd.Sum) is lazy
    assert torch.equal(lazy, total.conj())
    truth = torch.tensor([True, rank == 0, False])
    assert hvd.allreduce(truth, op=hvd.LogicalXor).tolist() == [n % 2 == 1, True, False]


@SIZES
def test_complex_numbers_and_truth(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_complex)


def _check_gradients() -> None:
    n, rank = hvd.size(), hvd.rank()
    weights = [torch.arange(6.0).reshape(2, 3) + 10 * r for r in range(n)]  # of the result, in each rank's loss
    total = torch.stack(weights).sum(dim=0)

    def gradient(function: Any, start: Any = None) -> torch.Tensor:
        x = torch.full((2, 3), rank + 1.0) if start is None else start
        x.requires_grad_(True)
        (function(x) * weights[rank]).sum().backward()
        assert x.grad is not None
        return x.grad

    assert torch.equal(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)), total)
    torch.testing.assert_close(gradient(hvd.allreduce), total / n)
    scaled = gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0))
    assert torch.equal(scaled, total * 6)
    # Rank 0 has the smallest, the last rank the largest.
    assert torch.equal(gradient(lambda x: hvd.allreduce(x, op=hvd.Min)), total * (rank == 0))
    assert torch.equal(gradient(lambda x: hvd.allreduce(x, op=hvd.Max)), total * (rank == n - 1))
    everyone = gradient(lambda x: hvd.allreduce(x, op=hvd.Max), torch.ones(2, 3))
    torch.testing.assert_close(everyone, total / n)
    first = gradient(lambda x: hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)[1])
    assert torch.equal(first, total * 2)
    torch.testing.assert_close(gradient(lambda x: hvd.broadcast(x, 1)), total / n * (rank == 1))

    second = gradient(lambda x: hvd.grouped_broadcast([torch.ones(2, dtype=torch.int64), x], 1)[1])
    torch.testing.assert_close(second, total / n * (rank == 1))

    rows = torch.ones(rank + 1, 3, requires_grad=True)
    gathered = hvd.allgather(rows)
    factors = torch.arange(float(gathered.numel())).reshape(gathered.shape)
    (gathered * factors * (rank + 1)).sum().backward()
    start = sum(range(rank + 1))
    mean = factors * sum(range(n + 1)) / n
    torch.testing.assert_close(rows.grad, mean[start : start + rank + 1])


@SIZES
def test_gradients(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_gradients)


def _check_groups() -> None:
    n, rank = hvd.size(), hvd.rank()
    mine = [torch.full((3, 2), float(rank)).t(), torch.tensor(rank), torch.empty(0), torch.tensor([rank > 0])]
    theirs = [torch.full((2, 3), n - 1.0), torch.tensor(n - 1), torch.empty(0), torch.tensor([True])]
    results = hvd.grouped_broadcast(mine, n - 1, name="several")
    assert all(map(torch.equal, results, theirs))
    assert int(mine[1]) == rank
    handle = hvd.grouped_broadcast_async_(mine, n - 1)
    assert all(a is b for a, b in zip(hvd.synchronize(handle), mine, strict=True))
    assert all(map(torch.equal, mine, theirs))

    sent = hvd.grouped_send_async([torch.full((2, 3), float(rank)).t(), torch.tensor(rank)], (rank + 1) % n)
    room = [torch.empty(2, 3).t(), torch.tensor(0)]
    assert hvd.grouped_recv(room, (rank - 1) % n) == room
    assert torch.equal(room[0], torch.full((3, 2), float((rank - 1) % n)))
    assert int(room[1]) == (rank - 1) % n
    sent.wait()


@SIZES
def test_groups_of_what_is_moved(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_groups)


def _check_parameters() -> None:
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten())
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    root = hvd.size() - 1
    if hvd.rank() == root:  # only the root has state
        model(torch.randn(4, 1, 5, 5)).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * (root + 1))
    state = [value for entry in optimizer.state.values() for value in entry.values()]
    assert len(state) == 3 * len(list(model.parameters()))
    for tensor in [*model.state_dict().values(), *state]:
        everyone = hvd.allgather(tensor.detach().double().flatten()[None])
        assert torch.equal(everyone, everyone[:1].expand_as(everyone))


@SIZES
def test_broadcast_of_parameters_and_optimizer_state(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_parameters)


def _mismatched_models() -> str:
    model = torch.nn.Linear(3, 2 + (hvd.rank() == 1))
    with pytest.raises(hvd.errors.MismatchError) as caught:
        hvd.broadcast_parameters(model.state_dict(), 0)
    return str(caught.value)


def test_different_models_are_named(worlds: Any) -> None:
    # Both parameters differ, and either may be reported first.
    for message in worlds.of(2).run(_mismatched_models):
        assert "broadcast_parameters.bias" in message or "broadcast_parameters.weight" in message


def _check_objects() -> None:
    received = hvd.broadcast_object({"tensor": torch.full((3,), float(hvd.rank()))}, root_rank=1)
    assert torch.equal(received["tensor"], torch.ones(3))
    assert hvd.allgather_object(torch.tensor(hvd.rank())) == [torch.tensor(r) for r in range(hvd.size())]


@SIZES
def test_objects(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_objects)
