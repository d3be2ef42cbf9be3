"""The parts of check.py, as ranks run them. Each returns what it found, or raises."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ciranda.torch as hvd
from ciranda.errors import CirandaError, RanksLostError, TimeoutError

# Those of its programs that need no simulated driver.
sys.path.insert(0, str(Path(__file__).parents[1] / "fakes_torch"))
from faults import fail_on_the_gpu, with_work_that_never_ends
from faults import run as run_fault

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {}
_DTYPES = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]
_DTYPES += [torch.float64, torch.complex64]


def part(function: Callable[[bool], dict[str, Any]]) -> Callable[[bool], dict[str, Any]]:
    PARTS[function.__name__] = function
    return function


def _values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return (torch.randint(0, 5, shape) + hvd.rank()).to(dtype)


def _same(on_gpu: torch.Tensor, on_cpu: torch.Tensor, what: object) -> None:
    if not on_gpu.is_cuda or not torch.equal(on_gpu.cpu(), on_cpu):
        raise AssertionError(f"{what}: {on_gpu.cpu()} on the GPU, {on_cpu} on the CPU")


@part
def probe(_small: bool) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "torch": torch.__version__,
        "cuda of torch": torch.version.cuda,
        "gpu": getattr(properties, "name", "?"),
        "gpus": torch.cuda.device_count(),
        "sum": float(hvd.allreduce(torch.ones(8, device="cuda"), op=hvd.Sum).sum()),
    }


@part
def doctor(_small: bool) -> dict[str, Any]:
    """What `ciranda doctor` says of each GPU."""
    from ciranda.doctor import gpus

    rows = list(gpus.gpus())
    for row in rows:
        assert row.status == "ok" or "small tensors are copied one by one" in row.found, row
    return {row.name: row.found for row in rows}


def _of_faults(name: str) -> Callable[[bool], dict[str, Any]]:
    def run(_small: bool) -> dict[str, Any]:
        run_fault(name)
        return {"right": True}

    return run


for _name in ("shapes", "freed", "never_waited_for", "begins_anew"):
    PARTS[_name] = _of_faults(_name)


def _around(tensor: torch.Tensor) -> torch.Tensor:
    """From each rank to the next."""
    if hvd.size() == 1:
        return tensor
    sent = hvd.send_async(tensor, (hvd.rank() + 1) % hvd.size())
    received = hvd.recv(torch.empty_like(tensor), (hvd.rank() - 1) % hvd.size())
    hvd.synchronize(sent)
    return received


def _at_root(result: torch.Tensor | None, given: torch.Tensor) -> torch.Tensor:
    return given if result is None else result


@part
def collectives(small: bool) -> dict[str, Any]:
    """Every result is that of the same call on the CPU, bit for bit."""
    n_calls = 0
    n_rows = 2 * hvd.size()
    widths = (1, 333) if small else (1, 333, 250_000)
    for dtype in _DTYPES[::3] if small else _DTYPES:
        for width in widths:
            mine = _values(dtype, n_rows, width)
            calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
                "sum": lambda tensor: hvd.allreduce(tensor, op=hvd.Sum),
                "product": lambda tensor: hvd.allreduce(tensor, op=hvd.Product),
                "reducescatter": lambda tensor: hvd.reducescatter(tensor, op=hvd.Sum),
                "allgather": lambda tensor: hvd.allgather(tensor[: hvd.rank() + 1]),
                "broadcast": lambda tensor: hvd.broadcast(tensor, root_rank=hvd.size() - 1),
                "alltoall": hvd.alltoall,
                "scan": lambda tensor: hvd.scan(tensor, op=hvd.Sum),
                "reduce": lambda tensor: _at_root(hvd.reduce(tensor, root_rank=0, op=hvd.Sum), tensor),
                "gather": lambda tensor: _at_root(hvd.gather(tensor[: hvd.rank() + 1], root_rank=0), tensor),
                "scatter": lambda tensor: hvd.scatter(tensor, root_rank=0),
                "send and receive": _around,
                "transposed": lambda tensor: hvd.allreduce(tensor.t(), op=hvd.Sum),
            }
            if dtype.is_floating_point or dtype.is_complex:
                calls["average"] = lambda tensor: hvd.allreduce(tensor, prescale_factor=0.5, postscale_factor=3.0)
            for name, call in calls.items():
                _same(call(mine.cuda()), call(mine), (name, dtype, width))
                n_calls += 1
    many = [_values(torch.float32, size) for size in (0, 1, 7, 1000, 65537)]
    together = hvd.grouped_allreduce([each.cuda() for each in many], op=hvd.Sum)
    for on_gpu, on_cpu in zip(together, hvd.grouped_allreduce(many, op=hvd.Sum), strict=True):
        _same(on_gpu, on_cpu, "group")
    return {"calls": n_calls + 1}


@part
def large(_small: bool) -> dict[str, Any]:
    """More than 4 GiB in one call."""
    n = (1 << 32) + (1 << 20)
    places = (0, (1 << 32) - 1, 1 << 32, n - 1)
    mine = torch.zeros(n, dtype=torch.uint8, device="cuda")
    for place in places:
        mine[place] = hvd.rank() + 1
    hvd.allreduce_(mine, op=hvd.Sum, name="large")
    total = sum(range(hvd.size() + 1))
    assert [int(mine[place]) for place in places] == [total] * len(places)
    assert int(mine.view(torch.int64).count_nonzero()) == len(places), "what is between them was changed"
    return {"bytes": n}


@part
def together(_small: bool) -> dict[str, Any]:
    """Rank 0 has its tensor on the CPU; then it changes sides with the others."""
    for turn in range(4):
        is_on_gpu = (hvd.rank() + turn) % 2 == 1
        mine = _values(torch.float32, 1000)
        given = mine.cuda() if is_on_gpu else mine
        result = hvd.allreduce(given, op=hvd.Sum, name="together")
        assert result.is_cuda == is_on_gpu
        expected = hvd.allreduce(mine, op=hvd.Sum, name="on the CPU")
        assert torch.equal(result.cpu(), expected)
    return {"turns": 4}


@part
def streams(small: bool) -> dict[str, Any]:
    """What a slow kernel makes is waited for; the result is there for whichever stream the waiting thread has."""
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    size = 64 if small else 2048
    for turn in range(3 if small else 30):
        with torch.cuda.stream(side):
            slow = torch.full((size, size), 1.0 / size, device="cuda")
            for _ in range(2 if small else 20):
                slow = slow @ torch.full((size, size), 1.0 / size, device="cuda")
            mine = torch.round(slow * size) + hvd.rank() + turn
            handle = hvd.allreduce_async(mine, op=hvd.Sum, name="slow")
        with torch.cuda.stream(other):
            result = hvd.synchronize(handle)
            expected = sum(1.0 + rank + turn for rank in range(hvd.size()))
            assert torch.all(result == expected).item(), (turn, result.flatten()[0].item(), expected)
        del mine, slow
    dropped = [hvd.allreduce_async(torch.ones(1000, device="cuda"), name=f"dropped.{n}") for n in range(50)]
    del dropped
    torch.cuda.synchronize()
    return {"turns": 3 if small else 30}


def _trained(device: str, options: dict[str, Any]) -> torch.Tensor:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)).to(device)
    optimizer: Any = torch.optim.Adam(model.parameters(), lr=1e-3)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 20, generator=generator).to(device)).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


@part
def trainings(_small: bool) -> dict[str, Any]:
    """All ranks come to the same parameters, which are the CPU's but for its rounding."""
    most = 0.0
    for name, options in {
        "plain": {},
        "buckets": {"gradient_as_bucket_view": True},
        "groups": {"groups": 2},
        "float16": {"compression": hvd.Compression.fp16},
        "predivided": {"gradient_predivide_factor": 2.0},
    }.items():
        on_gpu, on_cpu = _trained("cuda", options), _trained("cpu", options)
        everyones = hvd.allgather(on_gpu.reshape(1, -1))
        assert torch.equal(everyones, on_gpu.expand_as(everyones)), f"{name}: ranks differ"
        most = max(most, float((on_gpu - on_cpu).abs().max()))
        assert most < 1e-3, f"{name}: {most} from the CPU"
    return {"most from the CPU": most}


def _ones_after_a_call(length: int) -> torch.Tensor:
    """A tensor that a call has read, on all ranks. The launcher ends this rank after it has seen an error only."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ones = torch.ones(length, device="cuda")
    hvd.allreduce(ones, name="first")
    time.sleep(1)  # on another rank it may end later: that must not hear of the fault meanwhile
    return ones


@part
def a_rank_is_killed(_small: bool) -> dict[str, Any]:
    """Rank 2 dies between two calls; the others hear of it within a second, and the GPU is theirs again."""
    mine = _ones_after_a_call(1 << 20)
    if hvd.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        hvd.allreduce(mine, name="second")
    except RanksLostError as error:
        seconds = time.monotonic() - begin
        assert "rank 2" in str(error), error
        torch.cuda.synchronize()
        assert float(mine.sum()) == 1 << 20, "a tensor was written to after its call failed"
        if hvd.rank() == 0:
            print("JSON " + json.dumps({"heard after s": round(seconds, 3)}), flush=True)
        os._exit(0 if seconds < 2 else 1)
    raise AssertionError("the call succeeded")


def _leave_with(error: CirandaError, begin: float, code: int = 0) -> None:
    """Tell that a fault was heard of, and leave as it is: this process may have work on its GPU that never ends."""
    found = {"heard after s": round(time.monotonic() - begin, 3), "error": str(error)[:300]}
    if hvd.rank() == 0:
        print("JSON " + json.dumps(found), flush=True)
    time.sleep(2)  # others are to hear of the fault, and not of this end
    os._exit(code)


@part
def a_kernel_fails(_small: bool) -> dict[str, Any]:
    """Rank 1's own kernel fails on its GPU: both ranks hear of it by the GPU's name, and rank 0's is of use."""
    mine = _ones_after_a_call(1000)
    if hvd.rank() == 1:
        fail_on_the_gpu(mine)
    begin = time.monotonic()
    try:
        hvd.allreduce(mine, name="second")
    except CirandaError as error:
        assert "GPU-" in str(error), error
        if hvd.rank() == 0:
            assert float(mine.sum()) == 1000
        _leave_with(error, begin)
    raise AssertionError("the call succeeded")


@part
def a_kernel_takes_long(_small: bool) -> dict[str, Any]:
    """Longer than the limit of stalls, on rank 1's stream: both ranks are told of the GPU at the limit."""
    mine = _ones_after_a_call(1000)
    if hvd.rank() == 1:
        mine = with_work_that_never_ends()
    begin = time.monotonic()
    try:
        hvd.allreduce(mine, name="second")
    except TimeoutError as error:
        assert "the tensors of rank 1 (host " in str(error), error
        assert "on GPU " in str(error), error
        _leave_with(error, begin)
    raise AssertionError("the call succeeded")


@part
def a_rank_is_stopped(_small: bool) -> dict[str, Any]:
    """Rank 2 stops between two calls: the others are told at the limit of stalls, and their GPU is of use."""
    mine = _ones_after_a_call(1 << 20)
    if hvd.rank() == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    begin = time.monotonic()
    try:
        hvd.allreduce(mine, name="second")
    except TimeoutError as error:
        assert "2" in str(error), error
        assert float(mine.sum()) == 1 << 20, "a tensor was written to after its call failed"
        _leave_with(error, begin, code=3)  # or the launcher would wait for rank 2
    raise AssertionError("the call succeeded")


def _median_ms(call: Callable[[], object], turns: int) -> float:
    taken = []
    for _ in range(turns):
        hvd.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return 1e3 * sorted(taken)[turns // 2]


@part
def figures(small: bool) -> dict[str, Any]:
    """Milliseconds of an allreduce of float32 on all ranks' one GPU, beside gloo's of the same tensor."""
    import torch.distributed as gloo

    turns = 3 if small else 20
    has_gloo = gloo.is_available() and not small
    if has_gloo:
        port = int(hvd.broadcast_object(_free_port() if hvd.rank() == 0 else None))
        gloo.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=hvd.rank(), world_size=hvd.size())
    found: dict[str, Any] = {}
    for n_bytes in (4 << 10, 1 << 20) if small else (4 << 10, 1 << 20, 64 << 20):
        tensor = torch.zeros(n_bytes // 4, device="cuda")
        row = {"ciranda": _median_ms(lambda tensor=tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="f"), turns)}
        if has_gloo:
            row["gloo"] = _median_ms(lambda tensor=tensor: gloo.all_reduce(tensor), turns)
        found[f"{n_bytes >> 10} KiB"] = {name: round(value, 3) for name, value in row.items()}
    sizes = [64] * 106 + [4096] * 30 + [600_000 if not small else 600] * 25  # about those of ResNet-50
    gradients = [torch.zeros(size, device="cuda") for size in sizes]
    found["161 tensors"] = round(_median_ms(lambda: hvd.grouped_allreduce_(gradients, name="g"), turns), 3)
    return found


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    found = PARTS[arguments.part](arguments.small)
    if hvd.rank() == 0:
        print("JSON " + json.dumps(found), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
    sys.exit(0)
