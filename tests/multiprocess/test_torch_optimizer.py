"""DistributedOptimizer over real processes: n ranks must do what one process does on the same global batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from ranks import Ranks

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

SIZES = pytest.mark.parametrize("n_ranks", [2, 3, 4])
STEPS = 6
BATCH = 24  # divides by 2, 3 and 4


def _model() -> torch.nn.Module:
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 32), torch.nn.Tanh(),
        torch.nn.Linear(32, 10),
    )  # fmt: skip
    return model.to(memory_format=torch.channels_last)


def _loss(model: torch.nn.Module, batch: int, part: int = 0, parts: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch)
    inputs = torch.randn(BATCH, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (BATCH,), generator=generator)
    return torch.nn.functional.cross_entropy(model(inputs[part::parts]), labels[part::parts])


def _flat(model: torch.nn.Module) -> list[float]:
    return [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]


MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def _alone(make: str, passes: int) -> list[float]:
    """One process over the global batches."""
    model = _model()
    optimizer = MAKERS[make](model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        for i in range(passes):
            _loss(model, step * passes + i).backward()
        optimizer.step()
    return _flat(model)


def _distributed(make: str, passes: int, options: dict[str, Any]) -> list[float]:
    """This rank's share of the same batches."""
    model = _model()
    if hvd.rank() != 0:  # what broadcast_parameters has to mend
        for parameter in model.parameters():
            parameter.data.add_(1.0)
    optimizer = hvd.DistributedOptimizer(
        MAKERS[make](model.parameters()),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(STEPS):
        optimizer.zero_grad()
        for i in range(passes):
            _loss(model, step * passes + i, hvd.rank(), hvd.size()).backward()
        optimizer.step()
    return _flat(model)


def _assert_close(results: list[list[float]], expected: list[float], tolerance: float = 1e-5) -> None:
    assert all(result == results[0] for result in results), "the ranks have come apart"
    worst = max(abs(a - b) for a, b in zip(results[0], expected, strict=True))
    assert worst < tolerance, f"off by {worst}"


@SIZES
@pytest.mark.parametrize(
    ("make", "passes", "options"),
    [
        ("SGD", 1, {}),
        ("Adam", 1, {}),
        ("SGD", 3, {}),
        ("SGD", 1, {"groups": 2}),
        ("SGD", 1, {"gradient_predivide_factor": 8.0}),
    ],
    ids=str,
)
def test_like_one_process(worlds: Any, n_ranks: int, make: str, passes: int, options: dict[str, Any]) -> None:
    results = worlds.of(n_ranks).run(_distributed, make, passes, options)
    # Adam divides by the root of a squared gradient: rounding shows more.
    _assert_close(results, _alone(make, passes), 1e-5 if make == "SGD" else 1e-3)


def test_like_one_process_over_tcp() -> None:
    with Ranks(2, env={"CIRANDA_SHARED_MEMORY": "0"}, with_torch=True) as ranks:
        _assert_close(ranks.run(_distributed, "SGD", 1, {}), _alone("SGD", 1))


def _some_without_gradient() -> tuple[list[float], list[str]]:
    """Each rank uses another layer: the others' gradients reach it all the same, and it says so once a layer."""
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 1, bias=False) for _ in range(hvd.size()))
    for layer in layers:
        layer.weight.data.zero_()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layers.parameters(), lr=1.0), named_parameters=layers.named_parameters()
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            optimizer.zero_grad()
            mine = layers[(hvd.rank() + step) % hvd.size()]
            mine(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    return _flat(layers), [str(warning.message) for warning in caught]


@SIZES
def test_ranks_that_use_different_parameters(worlds: Any, n_ranks: int) -> None:
    expected = [pytest.approx(-3.0 / n_ranks)] * (2 * n_ranks)
    for result, messages in worlds.of(n_ranks).run(_some_without_gradient):
        assert result == expected
        for layer in range(n_ranks):
            assert sum(f"{layer}.weight" in message for message in messages) == 1


def _mismatched() -> str:
    model = torch.nn.Linear(2, 1 + hvd.rank(), bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=[("odd", model.weight)]
    )
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(hvd.HorovodInternalError) as caught:
        optimizer.step()
    # The optimizer and the engine go on working.
    torch.manual_seed(1)  # the ranks have drawn other numbers of weights
    model = torch.nn.Linear(2, 1, bias=False)
    again = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=[("odd", model.weight)]
    )
    model(torch.ones(1, 2)).sum().backward()
    again.step()
    return str(caught.value)


def test_a_mismatch_surfaces_in_step(worlds: Any) -> None:
    for message in worlds.of(2).run(_mismatched):
        assert "DistributedOptimizer.odd" in message
        assert "[1, 2]" in message
        assert "[2, 2]" in message


def _train_in_buckets() -> tuple[list[float], list[int], int]:
    """Parameters, bytes that were combined in place in each step, and the bytes of all gradients."""
    from ciranda._basics import engine

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 64))
    layers = [list(model[0].parameters()), list(model[2].parameters())]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        groups=layers,
        gradient_as_bucket_view=True,
    )
    in_place = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(BATCH, 64, generator=generator)[hvd.rank() :: hvd.size()]
        before = engine().n_bytes_in_place
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        in_place.append(engine().n_bytes_in_place - before)
    return _flat(model), in_place, sum(4 * parameter.numel() for parameter in model.parameters())


@SIZES
def test_gradients_in_shared_memory_are_not_copied(worlds: Any, n_ranks: int) -> None:
    (alone, _, _), *_ = worlds.of(1).run(_train_in_buckets)
    # Where ranks share cores the cost model would take one shot for these, which copies.
    with Ranks(n_ranks, env={"CIRANDA_ONE_SHOT_BYTES": "4096"}, with_torch=True) as world:
        results = world.run(_train_in_buckets)
    for parameters, in_place, n_bytes in results:
        assert parameters == pytest.approx(alone, rel=1e-6, abs=1e-7)
        assert in_place == [0] + [n_bytes] * (STEPS - 1), "the first step allocates"
