"""What works through the backend of torch.distributed, and through gloo: tried here, and told in the guide.

CIRANDA_WRITE_TABLES=1 python -m pytest tests/multiprocess/test_torch_distributed_table.py

writes what it found into the guide; without that, the guide must say the same.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

pytestmark = pytest.mark.multiprocess

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/torch_distributed.md"
BEGIN, END = "<!-- table of what works: begin -->\n", "<!-- table of what works: end -->\n"


def _expect(tensor: torch.Tensor, values: Any) -> None:
    torch.testing.assert_close(tensor, torch.as_tensor(values, dtype=tensor.dtype))


def _all_reduce(group: Any) -> None:
    for op, value in ((dist.ReduceOp.SUM, 3.0), (dist.ReduceOp.MAX, 2.0), (dist.ReduceOp.PRODUCT, 2.0)):
        tensor = torch.full((3,), 1.0 + dist.get_rank())
        dist.all_reduce(tensor, op, group=group)
        _expect(tensor, [value] * 3)


def _all_reduce_avg(group: Any) -> None:
    tensor = torch.full((3,), 1.0 + dist.get_rank())
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
    _expect(tensor, [1.5] * 3)


def _all_reduce_sparse(group: Any) -> None:
    rank = dist.get_rank()
    tensor = torch.sparse_coo_tensor([[0, rank + 1]], [[1.0, 2.0], [3.0, 4.0]], (4, 2))
    dist.all_reduce(tensor, group=group)
    _expect(tensor.to_dense(), [[2.0, 4.0], [3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])


def _broadcast_reduce(group: Any) -> None:
    tensor = torch.full((3,), 1.0 + dist.get_rank())
    dist.broadcast(tensor, 1, group=group)
    _expect(tensor, [2.0] * 3)
    dist.reduce(tensor, 0, group=group)
    if dist.get_rank() == 0:
        _expect(tensor, [4.0] * 3)


def _gather_scatter(group: Any) -> None:
    rank, mine = dist.get_rank(), torch.full((2,), 1.0 + dist.get_rank())
    parts = [torch.empty(2), torch.empty(2)]
    dist.gather(mine, parts if rank == 0 else None, 0, group=group)
    if rank == 0:
        _expect(torch.cat(parts), [1.0, 1.0, 2.0, 2.0])
    dist.scatter(mine, [torch.zeros(2), torch.ones(2)] if rank == 0 else None, 0, group=group)
    _expect(mine, [float(rank)] * 2)


def _all_gather(group: Any) -> None:
    mine, parts, whole = torch.full((2,), 1.0 + dist.get_rank()), [torch.empty(2), torch.empty(2)], torch.empty(4)
    dist.all_gather(parts, mine, group=group)
    dist.all_gather_into_tensor(whole, mine, group=group)
    _expect(torch.cat(parts), [1.0, 1.0, 2.0, 2.0])
    _expect(whole, [1.0, 1.0, 2.0, 2.0])


def _reduce_scatter(group: Any) -> None:
    mine = torch.empty(2)
    dist.reduce_scatter(mine, [torch.ones(2), torch.full((2,), 2.0)], group=group)
    _expect(mine, [2.0 + 2 * dist.get_rank()] * 2)
    dist.reduce_scatter_tensor(mine, torch.arange(4.0), group=group)
    _expect(mine, [[0.0, 2.0], [4.0, 6.0]][dist.get_rank()])


def _all_to_all(group: Any) -> None:
    rank = dist.get_rank()
    whole, mine = torch.empty(3 if rank else 1), torch.arange(2.0) + 10 * rank
    received, sent = ([1, 2], [0, 2]) if rank else ([1, 0], [1, 1])
    dist.all_to_all_single(whole, mine, received, sent, group=group)
    _expect(whole, [1.0, 10.0, 11.0] if rank else [0.0])
    parts = [torch.empty(1), torch.empty(1)]
    dist.all_to_all(parts, list(torch.arange(2.0).add(10 * rank).split(1)), group=group)
    _expect(torch.cat(parts), [float(rank), 10.0 + rank])


def _coalesced(group: Any) -> None:
    tensors = [torch.ones(2), torch.ones(3)]
    with dist._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    _expect(torch.cat(tensors), [2.0] * 5)


def _objects(group: Any) -> None:
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": dist.get_rank()}, group=group)
    assert objects == [{"rank": 0}, {"rank": 1}]
    shared = [objects if dist.get_rank() == 1 else None]
    dist.broadcast_object_list(shared, 1, group=group)
    assert shared == [objects]


def _messages(group: Any) -> None:
    tensor, other = torch.full((2,), float(dist.get_rank())), 1 - dist.get_rank()
    received = torch.empty(2)
    sends = dist.P2POp(dist.isend, tensor, other, group, 3), dist.P2POp(dist.irecv, received, other, group, 3)
    for work in dist.batch_isend_irecv(list(sends)):
        work.wait()
    _expect(received, [float(other)] * 2)


def _any_source(group: Any) -> None:
    tensor = torch.full((2,), 1.0)
    if dist.get_rank() == 0:
        assert dist.recv(tensor, group=group) == 1
        _expect(tensor, [5.0] * 2)
    else:
        dist.send(torch.full((2,), 5.0), 0, group=group)


def _functional(group: Any) -> None:
    import torch.distributed._functional_collectives as functional

    _expect(functional.all_reduce(torch.ones(2), "sum", group) + 0, [2.0] * 2)
    _expect(functional.all_gather_tensor(torch.full((1,), float(dist.get_rank())), 0, group) + 0, [0.0, 1.0])


def _split(group: Any) -> None:
    dist.split_group(group, [[0, 1]])


def _monitored_barrier(group: Any) -> None:
    dist.monitored_barrier(group)


def _step(model: torch.nn.Module, n_steps: int = 2) -> None:
    for _ in range(n_steps):
        model(torch.full((4, 3), 1.0 + dist.get_rank())).sum().backward()


def _ddp(group: Any, layer: torch.nn.Module | None = None, **options: Any) -> None:
    model = torch.nn.Linear(3, 2) if layer is None else layer
    ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group, **options)
    _step(ddp)
    _expect(model.weight.grad, [[12.0] * 3] * 2)  # type: ignore[arg-type]


def _ddp_options(group: Any) -> None:
    for options in ({"static_graph": True}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}):
        _ddp(group, None, **options)


def _ddp_sparse(group: Any) -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    ddp = torch.nn.parallel.DistributedDataParallel(table, process_group=group)
    ddp(torch.tensor([0, dist.get_rank()])).sum().backward()
    _expect(table.weight.grad.to_dense(), [[1.5] * 2, [0.5] * 2, [0.0] * 2, [0.0] * 2])  # type: ignore[union-attr]


def _uneven_inputs(group: Any) -> None:
    from torch.distributed.algorithms.join import Join

    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2), process_group=group)
    with Join([ddp]):
        _step(ddp, 1 + dist.get_rank())


def _zero(group: Any) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, process_group=group, lr=0.1)
    _step(ddp, 1)
    optimizer.step()


def _mesh(group: Any) -> Any:
    return dist.DeviceMesh.from_group(group, "cpu", mesh=torch.arange(2), mesh_dim_names=("dp",))


def _fsdp(group: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(3, 2)
    fully_shard(model, mesh=_mesh(group))
    _step(model, 1)
    _expect(model.weight.grad.full_tensor(), [[6.0] * 3] * 2)  # type: ignore[union-attr]


def _dtensor(group: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    whole = torch.arange(8.0).view(4, 2)
    sharded = distribute_tensor(whole, _mesh(group), [Shard(0)])
    _expect((sharded @ sharded.T.redistribute(placements=[Replicate()])).full_tensor(), whole @ whole.T)


def _checkpoint(group: Any) -> None:
    import torch.distributed.checkpoint as dcp

    for save in (dcp.save, dcp.async_save):
        folder = [tempfile.mkdtemp()]
        dist.broadcast_object_list(folder, 0, group=group)
        state = {"weights": torch.arange(4.0)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own
            done = save(state, checkpoint_id=folder[0], process_group=group)
            if save is dcp.async_save:
                done.result()
            loaded = {"weights": torch.zeros(4)}
            dcp.load(loaded, checkpoint_id=folder[0], process_group=group)
        _expect(loaded["weights"], torch.arange(4.0))


def _profile(group: Any) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as taken:
        dist.all_reduce(torch.ones(3), group=group)
    assert f"{dist.get_backend(group)}:all_reduce" in [event.name for event in taken.events() if event.is_async]


def _future(group: Any) -> None:
    done = (
        dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future().then(lambda each: each.value()[0] + 1)
    )
    _expect(done.wait(), [3.0] * 3)


#: What the guide calls it, and what is tried.
TRIED: dict[str, Callable[[Any], None]] = {
    "`all_reduce`": _all_reduce,
    "`all_reduce` with `AVG`": _all_reduce_avg,
    "`all_reduce` of sparse tensors": _all_reduce_sparse,
    "`broadcast`, `reduce`": _broadcast_reduce,
    "`gather`, `scatter`": _gather_scatter,
    "`all_gather`, `all_gather_into_tensor`": _all_gather,
    "`reduce_scatter`, `reduce_scatter_tensor`": _reduce_scatter,
    "`all_to_all`, `all_to_all_single` with uneven splits": _all_to_all,
    "`barrier`": dist.barrier,
    "`monitored_barrier`": _monitored_barrier,
    "coalesced collectives": _coalesced,
    "the `_object` functions": _objects,
    "functional collectives": _functional,
    "`isend`, `irecv`, `batch_isend_irecv`, tags": _messages,
    "`recv` from any source": _any_source,
    "`Work.get_future()`": _future,
    "`new_group`": lambda group: _all_reduce(dist.new_group(backend=dist.get_backend(group))),
    "`split_group`": _split,
    "DDP": _ddp,
    "DDP with `static_graph`, `find_unused_parameters`, `gradient_as_bucket_view`": _ddp_options,
    "DDP with sparse gradients": _ddp_sparse,
    "uneven inputs (`Join`)": _uneven_inputs,
    "`ZeroRedundancyOptimizer`": _zero,
    "FSDP2": _fsdp,
    "DTensor": _dtensor,
    "`dcp.save`, `dcp.async_save`, `dcp.load`": _checkpoint,
    "`torch.profiler` shows collectives": _profile,
}


def _outcome(call: Callable[[Any], None], group: Any) -> str:
    try:
        call(group)
    except Exception as error:
        return "no: " + str(error).partition("\n")[0].strip().rstrip(".")
    return "yes"


def _try_all() -> list[tuple[str, str, str]]:
    import ciranda.torch.distributed  # noqa: F401

    dist.init_process_group("ciranda")
    try:
        groups = dist.group.WORLD, dist.new_group(backend="gloo")
        return [(name, *(_outcome(call, group) for group in groups)) for name, call in TRIED.items()]  # type: ignore[misc]
    finally:
        dist.destroy_process_group()


def test_the_guide_says_what_works(worlds: Any) -> None:
    found, other = worlds.of(2).run(_try_all, timeout=120)
    assert found == other, "the ranks differ"
    table = [
        "| | `ciranda` | gloo |",
        "|---|---|---|",
        *(f"| {name} | {ours} | {gloo} |" for name, ours, gloo in found),
    ]
    text = "\n".join(table) + "\n"
    before, rest = GUIDE.read_text().split(BEGIN)
    said, after = rest.split(END)
    if os.environ.get("CIRANDA_WRITE_TABLES") == "1":
        GUIDE.write_text(before + BEGIN + "\n" + text + "\n" + END + after)
        return
    assert said.strip() == text.strip(), f"{GUIDE.name} is out of date; CIRANDA_WRITE_TABLES=1 writes it"
