"""The steps of batch normalisation by torch's CUDA kernels, as the fake GPU has them, are those by its operators."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ciranda.torch.batch_norm_steps import _Kernels, _Operators, variance_and_mean  # noqa: E402

FAKE = Path(__file__).parents[1] / "fakes" / "torch_cuda" / "batch_norm.py"
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def _kernels() -> Iterator[None]:
    spec = importlib.util.spec_from_file_location("fake_batch_norm", FAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library = module.install()
    yield
    library._destroy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 6), (4, 3, 5, 2), (2, 3, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("memory", ["in order", "channels last", "with gaps"])
def test_kernels_do_what_operators_do(dtype: torch.dtype, shape: tuple[int, ...], memory: str) -> None:
    generator = torch.Generator().manual_seed(1)
    batch, gradient = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    if memory == "channels last" and batch.ndim in LAST:
        batch = batch.contiguous(memory_format=LAST[batch.ndim])
    elif memory == "with gaps":
        batch = torch.stack([batch, batch], -1)[..., 0]
    variance, mean = variance_and_mean(batch)
    mean, factor = (each.to(torch.promote_types(dtype, torch.float32)) for each in (mean, (variance + 1e-5).rsqrt()))
    total = float(batch.numel() // 3)
    for weight, bias in ((None, None), (torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.1, 0.2, 0.3]))):
        found = []
        for steps in (_Operators(), _Kernels()):
            sums = steps.sums(gradient, batch, mean, factor)
            of_batch = steps.gradient_of_batch(gradient, batch, weight, mean, factor, sums, total)
            found.append((steps.normalize(batch, weight, bias, mean, factor), *sums, of_batch))
        for by_operators, by_kernels in zip(*found, strict=True):
            torch.testing.assert_close(by_kernels, by_operators)
