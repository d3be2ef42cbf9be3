"""Tensors of types that are moved as bytes: by every function that does not look at values, and reduced by none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

import ciranda.torch as hvd
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.torch.moved import CARRIERS

pytestmark = pytest.mark.multiprocess

Make = Callable[[int, int], torch.Tensor]


def _makers() -> list[tuple[torch.dtype, Make, Callable[[torch.Tensor], list[int]]]]:
    """For each type: how to make a tensor of so many elements from a number, and how to read it."""

    def of(dtype: torch.dtype, carrier: torch.dtype) -> tuple[torch.dtype, Make, Callable[[torch.Tensor], list[int]]]:
        return (
            dtype,
            lambda first, count: torch.arange(first, first + count).to(carrier).view(dtype),
            lambda tensor: tensor.contiguous().view(carrier).flatten().tolist(),
        )

    return [of(*each) for each in CARRIERS.items()]


def _check_functions() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype, make, read in _makers():
        mine = make(10 * rank, 6).reshape(2, 3)
        assert read(hvd.broadcast(mine, 1, name="b")) == [10, 11, 12, 13, 14, 15]
        assert read(hvd.broadcast(mine.t(), 1)) == [10, 13, 11, 14, 12, 15]
        column = mine.clone()[:, 1]
        assert read(hvd.broadcast_(column, 1)) == [11, 14]
        assert read(hvd.broadcast(make(rank, 1)[0], 1)) == [1]
        gathered = hvd.allgather(mine, name="g")
        assert (gathered.dtype, gathered.shape) == (dtype, (2 * size, 3))
        assert read(gathered[2:4]) == [10, 11, 12, 13, 14, 15]
        rows, counts = hvd.alltoall(make(10 * rank, size * 2).reshape(size, 2), splits=[1] * size)
        assert (rows.dtype, counts.tolist()) == (dtype, [1] * size)
        assert read(rows) == [10 * other + 2 * rank + i for other in range(size) for i in range(2)]
        at_root = hvd.gather(mine, 0)
        assert at_root is None if rank else read(at_root) == read(gathered)
        assert read(hvd.scatter(make(0, size * 2).reshape(size, 2), 0)) == [2 * rank, 2 * rank + 1]
        if rank == 0:
            hvd.send(mine, 1)
        elif rank == 1:
            assert read(hvd.recv(mine.clone(), 0)) == [0, 1, 2, 3, 4, 5]
        for reduce in (hvd.allreduce, hvd.allreduce_, hvd.reducescatter, hvd.scan):
            with pytest.raises(InvalidArgumentError, match=f"{dtype} cannot be combined"):
                reduce(mine)
        model = torch.nn.Linear(2, 2)
        model.register_buffer("scales", make(10 * rank, 3))
        hvd.broadcast_parameters(model.state_dict(), 1)
        assert read(model.scales) == [10, 11, 12]
        hvd.check_consistency(model.state_dict())
    with pytest.raises(MismatchError):
        hvd.broadcast(torch.zeros(3).to(torch.float8_e5m2 if rank else torch.float8_e4m3fn), 0, name="other types")


def _check_backend() -> None:
    import ciranda.torch.distributed  # noqa: F401

    dist.init_process_group("ciranda")
    rank, size = dist.get_rank(), dist.get_world_size()
    for _, make, read in _makers():
        for order in (list(range(size)), list(range(size))[::-1]):
            group = dist.new_group(order, sort_ranks=False)
            of_all = [i for other in order for i in range(10 * other, 10 * other + 4)]
            shared = make(10 * rank, 4)
            dist.broadcast(shared, 1, group=group)
            assert read(shared) == [10, 11, 12, 13]
            parts = [make(0, 4) for _ in order]
            dist.all_gather(parts, make(10 * rank, 4), group=group)
            assert [i for part in parts for i in read(part)] == of_all
            for output in (make(0, 4 * size).new_empty((4 * size, 2))[:, 0], make(0, 4 * size)):
                dist.all_gather_into_tensor(output, make(10 * rank, 4), group=group)
                assert read(output) == of_all
            parts = [make(0, 4) for _ in order]
            dist.gather(make(10 * rank, 4), None if rank else parts, 0, group=group)
            assert rank or [i for part in parts for i in read(part)] == of_all
            own = make(0, 4)
            dist.scatter(own, None if rank else [make(10 * other, 4) for other in order], 0, group=group)
            assert read(own) == [10 * rank + i for i in range(4)]
            received, sent = make(0, size), torch.cat([make(10 * rank + other, 1) for other in order])
            dist.all_to_all_single(received, sent, group=group)
            assert read(received) == [10 * other + rank for other in order]
            dist.destroy_process_group(group)
        if rank == 0:
            dist.send(make(7, 4), 1, tag=3)
        elif rank == 1:
            own = make(0, 4)
            dist.recv(own, 0, tag=3)
            assert read(own) == [7, 8, 9, 10]
        model = torch.nn.Linear(2, 2)
        model.register_buffer("scales", make(10 * rank, 3))
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        for _ in range(2):
            parallel(torch.ones(1, 2)).sum().backward()
        assert read(model.scales) == [0, 1, 2]
    eights = torch.zeros(3).to(torch.float8_e5m2 if rank else torch.float8_e4m3fn)
    with pytest.raises(InvalidArgumentError, match="cannot be combined"):
        dist.all_reduce(eights)
    with pytest.raises(MismatchError):
        dist.broadcast(eights, 0)
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("body", [_check_functions, _check_backend])
def test_what_is_moved_arrives_as_it_was(worlds: Any, body: Callable[[], None]) -> None:
    worlds.of(3).run(body, timeout=120)
