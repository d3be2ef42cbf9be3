"""What scripts and test suites written for Horovod catch and find, by `horovod.torch`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")

import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.mpi_ops import HorovodAllgather

pytestmark = pytest.mark.multiprocess

NEED_ALL: dict[str, Callable[[torch.Tensor], Any]] = {
    "allgather": hvd.allgather,
    "grouped_allgather": lambda x: hvd.grouped_allgather([x, x]),
    "broadcast": lambda x: hvd.broadcast(x, 0),
    "broadcast_": lambda x: hvd.broadcast_(x, 0),
    "broadcast from one that has joined": lambda x: hvd.broadcast(x, 1),
    "alltoall": lambda x: hvd.alltoall(x, None, None, hvd.global_process_set),
    "reducescatter": hvd.reducescatter,
    "grouped_reducescatter": lambda x: hvd.grouped_reducescatter([x, x], op=hvd.Sum),
    "apply": lambda x: HorovodAllgather.apply(x, None, hvd.global_process_set),
}


def _while_one_has_joined() -> None:
    if hvd.rank() != 1:
        for call in NEED_ALL.values():
            with pytest.raises(HorovodInternalError, match=r"needs all ranks.*have joined.*: rank 1\b"):
                call(torch.ones(6))
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size() - 1
    hvd.join()
    for call in NEED_ALL.values():
        call(torch.ones(6))


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_what_needs_all_ranks(circles: Any, n_ranks: int) -> None:
    circles.of(n_ranks).run(_while_one_has_joined, timeout=30)


TWICE: dict[str, Callable[[str], Any]] = {
    "allreduce": lambda name: hvd.allreduce_async(torch.ones(4), name=name),
    "allreduce_": lambda name: hvd.allreduce_async_(torch.ones(4), name=name),
    "grouped_allreduce": lambda name: hvd.grouped_allreduce_async([torch.ones(4)] * 2, name=name),
    "allgather": lambda name: hvd.allgather_async(torch.ones(4), name=name),
    "broadcast": lambda name: hvd.broadcast_async(torch.ones(4), 0, name=name),
    "alltoall": lambda name: hvd.alltoall_async(torch.ones(4), name=name),
    "reducescatter": lambda name: hvd.reducescatter_async(torch.ones(4), name=name),
}


def _twice(folder: Path) -> None:
    for kind, submit in TWICE.items():
        name = f"twice {kind}"
        has_called_twice = folder / name
        while hvd.rank() != 0 and not has_called_twice.exists():  # else rank 0's first call might be done by then
            time.sleep(0.001)
        first = submit(name)
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match=name):
                submit(name)
            has_called_twice.touch()
        with pytest.raises((ValueError, HorovodInternalError), match=name):
            hvd.synchronize(first)
    assert torch.equal(hvd.allreduce(torch.ones(4)), torch.ones(4))


def test_a_name_that_is_in_use_is_refused_by_the_call(circles: Any, tmp_path: Path) -> None:
    circles.of(2).run(_twice, tmp_path, timeout=30)


def _wrong_calls() -> None:
    scalar = torch.tensor(1.0)
    for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter, hvd.allgather_async, hvd.reducescatter_async):
        # Horovod finds a scalar when ranks agree, so that the collective fails; here the call is refused.
        for kind in (HorovodInternalError, ValueError):
            with pytest.raises(kind, match="scalar"):
                call(scalar)
    for kind in ("abc", [1.0], 3):
        for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with pytest.raises(ValueError, match="tensor"):
                call(kind)
    with pytest.raises(ValueError, match="root"):
        hvd.broadcast_async(torch.ones(1), hvd.size())
    for no_handle in (12345, None):
        for call in (hvd.poll, hvd.synchronize):
            with pytest.raises(ValueError, match="no handle"):
                call(no_handle)


def test_wrong_calls(circles: Any) -> None:
    circles.of(2).run(_wrong_calls, timeout=30)


def _zeros() -> None:
    model = torch.nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert model.bias.grad is None
    assert model.weight.grad is not None
    assert not model.weight.grad.any()
    optimizer.step()
    optimizer.zero_grad()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert model.weight.grad is None, "it has a state"


def test_a_new_optimizer_gets_gradients_of_zeros(circles: Any) -> None:
    circles.of(2).run(_zeros, timeout=30)
