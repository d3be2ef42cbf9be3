"""What scripts and test suites written for Horovod catch and find, by `horovod.torch`."""

from __future__ import annotations

from collections.abc import Callable
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
def test_what_needs_all_ranks(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_while_one_has_joined)


TWICE: dict[str, Callable[[str], Any]] = {
    "allreduce": lambda name: hvd.allreduce_async(torch.ones(4), name=name),
    "allreduce_": lambda name: hvd.allreduce_async_(torch.ones(4), name=name),
    "grouped_allreduce": lambda name: hvd.grouped_allreduce_async([torch.ones(4)] * 2, name=name),
    "allgather": lambda name: hvd.allgather_async(torch.ones(4), name=name),
    "broadcast": lambda name: hvd.broadcast_async(torch.ones(4), 0, name=name),
    "alltoall": lambda name: hvd.alltoall_async(torch.ones(4), name=name),
    "reducescatter": lambda name: hvd.reducescatter_async(torch.ones(4), name=name),
}


BLOCKING: dict[str, Callable[[torch.Tensor, str], Any]] = {
    "allreduce": lambda x, name: hvd.allreduce(x, name=name),
    "allreduce_": lambda x, name: hvd.allreduce_(x, name=name),
    "grouped_allreduce": lambda x, name: hvd.grouped_allreduce([x, x], None, name),
    "allgather": hvd.allgather,
    "broadcast": lambda x, name: hvd.broadcast_(x, 0, name),
    "alltoall": lambda x, name: hvd.alltoall(x, None, name),
    "reducescatter": hvd.reducescatter,
}


def _twice() -> None:
    for kind, submit in TWICE.items():
        name = f"twice {kind}"
        first = submit(name)
        hvd.barrier()
        with pytest.raises(ValueError, match=f"{name}.*synchronize"):
            submit(name)
        with pytest.raises(ValueError, match=f"{name}.*synchronize"):
            BLOCKING[kind](torch.ones(4), name)
        hvd.synchronize(first)
        second = submit(name)
        while not hvd.poll(second):
            pass
        hvd.synchronize(submit(name))
        BLOCKING[kind](torch.ones(4), name)
    assert torch.equal(hvd.allreduce(torch.ones(4)), torch.ones(4))


def test_a_name_is_in_use_until_its_handle_was_waited_for(worlds: Any) -> None:
    """Also where the first use has long been done; and the first use goes on, on every rank."""
    worlds.of(2).run(_twice)


def _drop_handles() -> None:
    """Nobody can wait for them any more: then a wait for anything else will do."""
    hvd.init()  # in a world in which nothing has failed: the next init() stays in it
    hvd.allreduce_async(torch.ones(4), name="dropped")
    with pytest.raises(ValueError, match=r"Duplicate name 'dropped' in allreduce on rank \d"):
        hvd.allreduce_async(torch.ones(4), name="dropped")
    hvd.allreduce(torch.ones(4), name="another")
    hvd.barrier()  # what was called before is done
    kept = hvd.allreduce_async(torch.ones(4), name="dropped")
    hvd.barrier()
    hvd.init()  # as the next of several tests begins
    hvd.allreduce(torch.ones(4), name="dropped")
    assert torch.equal(hvd.synchronize(kept), torch.ones(4))


def test_handles_that_were_dropped_hold_no_name_for_good(worlds: Any) -> None:
    worlds.of(2).run(_drop_handles)


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
            with pytest.raises(ValueError, match="not a handle"):
                call(no_handle)


def test_wrong_calls(worlds: Any) -> None:
    worlds.of(2).run(_wrong_calls)


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


def test_a_new_optimizer_gets_gradients_of_zeros(worlds: Any) -> None:
    worlds.of(2).run(_zeros)


def _scatter_by_adasum() -> None:
    x = torch.ones(2 * hvd.size())
    for call in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(RuntimeError, match=r"reducescatter.*: op=Adasum is one of allreduce only"):
            call(x, op=hvd.Adasum)
    for call in (hvd.grouped_reducescatter, hvd.grouped_reducescatter_async):
        with pytest.raises(HorovodInternalError, match="grouped_reducescatter"):
            call([x], op=hvd.Adasum)
    assert hvd.reducescatter(x, op=hvd.Sum).sum() == 2 * hvd.size()


def test_reducescatter_has_no_adasum(worlds: Any) -> None:
    worlds.of(2).run(_scatter_by_adasum)
