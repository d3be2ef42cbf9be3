"""SyncBatchNorm on n ranks must be BatchNorm on their batches put together, forward and backward."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import ciranda.torch as hvd

pytestmark = pytest.mark.multiprocess

SIZES = pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
CHANNELS = 3
STEPS = 3
#: How many samples each rank has, step by step: uneven, one with none. Never two in all: normalized they are 1 and -1
#: whatever they are, and their gradient is but the rounding of a zero.
SAMPLES = [[4, 4, 4, 4], [3, 5, 1, 3], [3, 0, 2, 1]]


def _batches(step: int, n_ranks: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    sizes = SAMPLES[step][:n_ranks]
    batch = torch.randn(sum(sizes), CHANNELS, *shape, generator=generator, dtype=torch.float64) * 3 + 1
    return [part.to(dtype) for part in batch.split(sizes)]


def _loss(output: torch.Tensor, first: int) -> torch.Tensor:
    """The sum over samples, each with factors of its own, so that a rank's loss is its part of the whole."""
    numbers = torch.arange(first * output[0:1].numel(), (first + len(output)) * output[0:1].numel())
    return (output.double() * torch.sin(numbers.double()).reshape(output.shape)).sum()


def _run(layer: Any, parts: list[torch.Tensor], firsts: list[int]) -> list[torch.Tensor]:
    """What comes out of one training step: output, gradients of input, weight and bias."""
    batch = torch.cat(parts).requires_grad_()
    layer.zero_grad()
    output = layer(batch)
    _loss(output, firsts[0]).backward()
    gradients = [parameter.grad for parameter in layer.parameters()]
    return [output.detach(), batch.grad, *gradients]


def _prepare(layer: Any, dtype: torch.dtype) -> Any:
    if layer.affine:
        torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
        torch.nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(2))
    return layer.to(dtype)


def _check(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, options: dict[str, Any]) -> None:
    n, rank = hvd.size(), hvd.rank()
    whole_class = {0: torch.nn.BatchNorm1d, 1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d, 3: torch.nn.BatchNorm3d}
    # The reference in fp64: fp32's own rounding is not what is tested.
    whole = _prepare(whole_class[len(shape)](CHANNELS, **options), torch.float64)
    shared = _prepare(hvd.SyncBatchNorm(CHANNELS, **options), dtype)
    for step in range(STEPS):
        parts = _batches(step, n, shape, dtype)
        starts = [0, *itertools.accumulate(len(part) for part in parts)]
        expected = _run(whole, [part.double() for part in parts], [0])
        results = _run(shared, [parts[rank]], [starts[rank]])
        mine = slice(starts[rank], starts[rank + 1])
        for result, reference in zip(results[:2], expected[:2], strict=True):
            assert result.dtype == dtype
            _assert_close(result, reference[mine], tolerance * _size(reference))
        for result, reference in zip(results[2:], expected[2:], strict=True):
            _assert_close(hvd.allreduce(result, op=hvd.Sum), reference, tolerance * _size(reference))
    for name, value in whole.state_dict().items():
        _assert_close(shared.state_dict()[name], value, tolerance * _size(value))
    part = _batches(0, n, shape, dtype)[rank]
    whole.eval(), shared.eval()
    _assert_close(shared(part), whole(part.double()), tolerance * 100)


def _size(reference: torch.Tensor) -> float:
    return max(1.0, float(reference.abs().max()))


def _assert_close(result: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert result.shape == expected.shape
    if result.numel():
        assert float((result.double() - expected.double()).abs().max()) <= tolerance


@SIZES
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 1, 3)], ids=str)
def test_like_the_whole_batch(worlds: Any, n_ranks: int, shape: tuple[int, ...]) -> None:
    """fp64 to 1e-12, fp32 to 2e-6, of the largest element or of 1."""
    world = worlds.of(n_ranks)
    world.run(_check, shape, torch.float64, 1e-12, {})
    world.run(_check, shape, torch.float32, 2e-6, {})


@SIZES
@pytest.mark.parametrize(
    "options", [{"affine": False}, {"momentum": None}, {"track_running_stats": False}, {"eps": 0.5, "momentum": 0.5}]
)
def test_arguments(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    worlds.of(n_ranks).run(_check, (3, 4), torch.float64, 1e-12, options)


def test_narrow_types(worlds: Any) -> None:
    """Statistics are formed in wider types: the result is as good as bfloat16 can hold it."""
    worlds.of(2).run(_check_bfloat16)


def _check_bfloat16() -> None:
    parts = _batches(1, hvd.size(), (4,), torch.bfloat16)
    expected = torch.nn.BatchNorm1d(CHANNELS)(torch.cat(parts).float())
    layer = hvd.SyncBatchNorm(CHANNELS).to(torch.bfloat16)
    start = sum(map(len, parts[: hvd.rank()]))
    result = layer(parts[hvd.rank()])
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), expected[start : start + len(result)], rtol=2**-8, atol=2**-8)


def _refused() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    with pytest.raises(ValueError, match="two or more"):
        layer(torch.ones(3))
    with pytest.raises(ValueError, match="3 channels"):
        layer(torch.ones(2, 4))
    rows = 1 if hvd.rank() == 0 else 0
    with pytest.raises(ValueError, match="more than one value"):
        layer(torch.ones(rows, CHANNELS))


def test_refused(worlds: Any) -> None:
    worlds.of(2).run(_refused)


def _train(is_distributed: bool) -> torch.Tensor:
    """A small network, converted: two of its layers communicate, and the optimizer besides."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(48, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2))
    model = model.double()
    rank, size = 0, 1
    if is_distributed:
        model = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
        assert sum(isinstance(layer, hvd.SyncBatchNorm) for layer in model) == 2
        rank, size = hvd.rank(), hvd.size()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for step in range(4):
        images = torch.randn(24, 1, 6, 6, generator=torch.Generator().manual_seed(step)).double()[rank::size]
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()
    return torch.cat([value.double().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_training(worlds: Any, n_ranks: int) -> None:
    expected = _train(False)
    for result in worlds.of(n_ranks).run(_train, True):
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
