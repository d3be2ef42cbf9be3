"""Every combination of DistributedOptimizer's arguments must train as one process does. fp32, to 1e-6 of the norm."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import Share, assert_same, flat, loss_of, mlp

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

LEARNING_RATE = 0.1
STEPS = 3


class Halves(hvd.Compressor):
    """Loses nothing, so that the tolerance is that of the other combinations."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor / 2, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor * 2


@dataclass(frozen=True)
class Combination:
    op: int
    predivide: float
    is_compressed: bool
    passes: int
    groups: int | str | None
    in_set: bool


COMBINATIONS = [
    Combination(op, predivide, *rest)
    for op, predivide in ((hvd.Average, 1.0), (hvd.Average, 3.0), (hvd.Sum, 1.0))
    for rest in itertools.product([False, True], [1, 2], [None, 2, "lists", "buckets"], [False, True])
]
#: For each number of ranks, those that are in the process set.
MEMBERS = {2: [1], 3: [0, 2], 4: [1, 2, 3]}


def _steps(model: torch.nn.Module, optimizer: Any, passes: int, share: Share) -> torch.Tensor:
    for number in range(STEPS):
        optimizer.zero_grad()
        for i in range(passes):
            loss_of(model, number * passes + i, share).backward()
        optimizer.step()
    return flat(model)


def _sgd(model: torch.nn.Module, rate: float = LEARNING_RATE) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def _alone(passes: int) -> torch.Tensor:
    model = mlp()
    return _steps(model, _sgd(model), passes, Share())


def _train(combination: Combination, ranks: list[int], process_set: Any) -> torch.Tensor:
    model = mlp()
    parameters = list(model.parameters())
    is_sum = combination.op == hvd.Sum
    groups = {"lists": [parameters[:2], parameters[3:]], "buckets": None}.get(combination.groups, combination.groups)
    optimizer = hvd.DistributedOptimizer(
        _sgd(model, LEARNING_RATE / len(ranks) if is_sum else LEARNING_RATE),
        model.named_parameters(),
        compression=Halves if combination.is_compressed else hvd.Compression.none,
        backward_passes_per_step=combination.passes,
        op=combination.op,
        gradient_predivide_factor=combination.predivide,
        groups=groups,
        process_set=process_set,
        gradient_as_bucket_view=combination.groups == "buckets",
    )
    return _steps(model, optimizer, combination.passes, Share(ranks.index(hvd.rank()), len(ranks)))


def _train_all(members: list[int]) -> list[torch.Tensor | None]:
    chosen = hvd.add_process_set(members)
    results: list[torch.Tensor | None] = []
    for combination in COMBINATIONS:
        ranks = members if combination.in_set else list(range(hvd.size()))
        process_set = chosen if combination.in_set else hvd.global_process_set
        results.append(_train(combination, ranks, process_set) if hvd.rank() in ranks else None)
    hvd.remove_process_set(chosen)
    return results


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_every_combination(worlds: Any, n_ranks: int) -> None:
    results = worlds.of(n_ranks).run(_train_all, MEMBERS[n_ranks])
    expected = {passes: _alone(passes) for passes in (1, 2)}
    failures = []
    for combination, trained in zip(COMBINATIONS, zip(*results, strict=True), strict=True):
        there = [result for result in trained if result is not None]
        assert len(there) == (len(MEMBERS[n_ranks]) if combination.in_set else n_ranks)
        try:
            assert_same(there, expected[combination.passes], 1e-6)
        except AssertionError as error:
            failures.append(f"{combination}: {error}")
    assert not failures, "\n".join(failures)
