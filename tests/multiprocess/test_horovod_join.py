"""Averages while ranks have joined: by Horovod's rule in `horovod.torch`, by the number that take part in Ciranda."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")

import torch

import ciranda.torch as ours
import horovod.torch as hvd

pytestmark = pytest.mark.multiprocess


def _means(module: Any) -> list[float]:
    """What every form gives where two of three ranks bring sixes."""
    x = torch.full((3,), 6.0)
    leaf = x.clone().requires_grad_()
    module.allreduce(leaf).sum().backward()
    assert leaf.grad is not None
    results = [
        module.allreduce(x),
        module.allreduce(x, True),
        module.allreduce(x, op=hvd.Average, compression=hvd.Compression.fp16),
        module.allreduce_(x.clone()),
        module.synchronize(module.allreduce_async(x)),
        module.synchronize(module.allreduce_async_(x.clone())),
        *module.grouped_allreduce([x, x.double()]),
        *module.grouped_allreduce_([x.clone()]),
        *module.synchronize(module.grouped_allreduce_async([x])),
        *module.synchronize(module.grouped_allreduce_async_([x.clone()])),
        6 * leaf.grad,
    ]
    if module is ours:  # Horovod's fails while ranks have joined
        results += [module.reducescatter(x), *module.grouped_reducescatter([x])]
    return [float(result[0]) for result in results if len(result)]


def _train(module: Any, **options: Any) -> float:
    """How far a step goes whose gradient is 6 on every rank that makes it."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = module.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)], **options)
    for _ in range(2):
        optimizer.zero_grad()
        (6 * weight).sum().backward()
        optimizer.step()
    return -float(weight) / 2


def _train_embedding(module: Any, **options: Any) -> float:
    """How far a step goes whose sparse gradient is 6 on every rank that makes it."""
    model = torch.nn.Embedding(50, 1, sparse=True)
    with torch.no_grad():
        model.weight.zero_()
    optimizer = module.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), **options
    )
    (6 * model(torch.tensor([3]))).sum().backward()
    optimizer.step()
    return -float(model.weight[3])


@pytest.mark.filterwarnings("ignore:the argument `average`:DeprecationWarning")
def _check() -> None:
    import warnings

    warnings.simplefilter("ignore", DeprecationWarning)
    n = hvd.size()
    assert _train(hvd) == _train(ours) == 6
    if hvd.rank() != 1:
        x = torch.full((3,), 6.0)
        assert set(_means(hvd)) == {4.0}
        assert set(_means(ours)) == {6.0}
        for op, wanted in ((hvd.Sum, 12.0), (hvd.Max, 6.0), (hvd.Product, 36.0)):
            assert hvd.allreduce(x, op=op)[0] == wanted
            assert hvd.synchronize(hvd.allreduce_async(x, op=op))[0] == wanted
        assert hvd.allreduce(x, weight=2.0)[0] == 6.0
        assert hvd.allreduce(x, divisor="contributors")[0] == 6.0
        assert _train(hvd) == _train(ours, divisor="world") == _train(hvd, gradient_predivide_factor=2.0) == 4.0
        assert _train(ours) == _train_embedding(ours) == 6.0
        assert _train_embedding(hvd) == _train_embedding(ours, divisor="world") == 4.0
        rows = torch.sparse_coo_tensor([[1]], torch.full((1, 1), 6.0), (40, 1), check_invariants=False)
        assert float(hvd.sparse_allreduce_async(rows, "rows", hvd.Average)().to_dense()[1]) == 4.0
        assert _train(hvd, op=hvd.Sum) == 12.0
        assert _train(hvd, gradient_as_bucket_view=True, groups=1) == 4.0
    assert hvd.join() in range(n)
    assert set(_means(hvd)) == {6.0}


def test_averages_while_a_rank_has_joined(worlds: Any) -> None:
    worlds.of(3).run(_check)
