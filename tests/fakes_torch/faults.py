"""What ranks do to their GPUs, and to each other: `python faults.py NAME[=ARGUMENT]...` is a rank of such programs.

Each forms a world, and prints lines that begin with FOUND and its name, which test_faults.py expects.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import ciranda.torch as hvd
from ciranda._basics import world
from ciranda.errors import CirandaError, InvalidArgumentError

PROGRAMS: dict[str, Callable[..., None]] = {}
#: Of the program that runs, with its argument.
_NAME: list[str] = []
#: What a copy that has not begun will read.
_KEPT: list[torch.Tensor] = []
#: The copy begins when this file is there: never.
_NEVER = "/nonexistent/begins"


def program(function: Callable[..., None]) -> Callable[..., None]:
    PROGRAMS[function.__name__] = function
    return function


def found(text: object) -> None:
    sys.stdout.write(f"FOUND {_NAME[-1]} {text}\n")
    sys.stdout.flush()


def values(n: int = 1000) -> torch.Tensor:
    return torch.arange(float(n)) + hvd.rank()


def kept_pinned_values() -> torch.Tensor:
    """Memory that a process that ends frees no earlier than its GPU ends."""
    _KEPT.append(values().pin_memory())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_KEPT[-1]))
    return _KEPT[-1]


def fake() -> ctypes.CDLL | None:
    """The simulated driver, if this process has it."""
    driver = ctypes.CDLL("libcuda.so.1")
    return driver if hasattr(driver, "fake_cuda_set") else None


def with_work_that_never_ends() -> torch.Tensor:
    """A tensor on a stream, the current one from now on, with a copy that does not begin.

    On a real GPU, not before a kernel of half a minute or so has ended.
    """
    mine, source = values().cuda(), kept_pinned_values()
    torch.cuda.synchronize()
    side, driver = torch.cuda.Stream(), fake()
    if driver is not None:
        driver.fake_cuda_set(b"FAKE_CUDA_STILL", f"{os.environ['STILL_STREAM']}:1:{_NEVER}".encode())
    torch.cuda.set_stream(side)
    if driver is None:
        torch.cuda._sleep(int(5e10))
    mine.copy_(source, non_blocking=True)
    return mine


def fail_on_the_gpu(mine: torch.Tensor) -> None:
    """Give the stream work that ends the process's use of its GPU."""
    driver = fake()
    if driver is None:
        mine[torch.full((1,), 1 << 30, device="cuda")]  # a device-side assertion
        return
    driver.fake_cuda_set(b"FAKE_CUDA_FAIL_RUN", b"cuMemcpyAsync:1:700")
    mine.copy_(kept_pinned_values(), non_blocking=True)


def leave_at_once() -> None:
    """The work that never ends keeps the process from leaving as usual."""
    sys.stdout.flush()
    os._exit(3)


@program
def refused() -> None:
    """The driver is no good: a tensor on the GPU is refused, those on the CPU go on."""
    for _ in range(2):
        try:
            hvd.allreduce(torch.ones(3, device="cuda"), name="on the GPU")
        except InvalidArgumentError as error:
            found(error)
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="on the CPU").tolist() == [hvd.size()] * 3
    found("on the CPU as ever")


def end(how: str) -> None:
    """End this process, or stop it."""
    {
        "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "exits": lambda: os._exit(0),
        "raises": lambda: sys.exit("an exception of rank 2"),
    }[how]()


@program
def a_rank_ends(how: str) -> None:
    """Rank 2 ends in some way before its input is there; the others' tensors keep what they had, but by NCCL.

    By NCCL the call is done before its result is there, and the next one fails.
    """
    is_by_nccl = os.environ.get("CIRANDA_GPU_WAY") == "nccl"
    mine = values().cuda()
    hvd.allreduce(mine, name="first")
    if hvd.rank() == 2:
        mine = with_work_that_never_ends()
        handle = hvd.allreduce_async_(mine, name="second")
        time.sleep(0.2)  # for the others to begin; whether they have makes no difference
        end(how)
        hvd.synchronize(handle)
    try:
        hvd.allreduce_(mine, name="second")
        assert is_by_nccl, "the call succeeded"
        hvd.allreduce(values(), name="third")
    except CirandaError as error:
        found(f"rank {hvd.rank()}: {type(error).__name__}: {error}")
        torch.cuda.synchronize()
        if is_by_nccl:
            mine.copy_(values())  # for what follows
        assert torch.equal(mine.cpu(), values()), "a tensor was written to after its call had failed"
        assert torch.equal((mine + 1).cpu(), values() + 1), "the GPU is of no use any more"
        leave_at_once()
    raise AssertionError("the call succeeded")


@program
def ends_in_init(how: str) -> None:
    """Rank 2 ends in some way while it makes its communicator of NCCL, which takes for ever."""
    mine = values().cuda()
    if hvd.rank() == 2:
        os.environ["FAKE_NCCL_INIT"] = "never"
        handle = hvd.allreduce_async_(mine, name="first")
        time.sleep(0.3)  # for the others to make theirs; whether they have makes no difference
        end(how)
        hvd.synchronize(handle)
    try:
        hvd.allreduce_(mine, name="first")
    except CirandaError as error:
        found(f"rank {hvd.rank()}: {type(error).__name__}: {error}")
        torch.cuda.synchronize()
        assert torch.equal((mine + 1).cpu(), values() + 1), "the GPU is of no use any more"
        leave_at_once()
    raise AssertionError("the call succeeded")


@program
def a_graph() -> None:
    """Each replay does a captured collective, until rank 1 is killed: then it raises, but not that of another graph."""
    mine = torch.ones(1000, device="cuda")
    hvd.allreduce_(mine, op=hvd.Sum, name="step")
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hvd.allreduce_(mine, op=hvd.Sum, name="step")
    with torch.cuda.graph(other):
        pass
    for n_times in range(2, 5):
        graph.replay()
        torch.cuda.synchronize()
        assert mine.tolist() == [hvd.size() ** n_times] * 1000, n_times
        hvd.allreduce_(torch.ones(1000, device="cuda"), name="between")
    hvd.barrier()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + 20
    try:
        while time.monotonic() < deadline:
            graph.replay()
            torch.cuda.synchronize()
    except CirandaError as error:
        found(f"rank {hvd.rank()}: {type(error).__name__}: {error}")
    other.replay()
    world.epoch += 1
    try:
        graph.replay()
    except InvalidArgumentError as error:
        found(f"rank {hvd.rank()}: in another world: {error}")
    world.epoch -= 1
    leave_at_once()


@program
def sums() -> None:
    """Calls that go by peer wherever they can."""
    for turn in range(3):
        assert hvd.allreduce(values().cuda(), op=hvd.Sum, name="sum")[1].item() == hvd.size() * (hvd.size() + 1) / 2
        assert hvd.broadcast(values().cuda(), 0, name=f"broadcast.{turn}")[1].item() == 1
        assert hvd.allgather(values().cuda()).numel() == hvd.size() * values().numel()
        assert hvd.scan(values().cuda(), op=hvd.Sum, name=f"scan.{turn}")[1].item() == sum(range(1, hvd.rank() + 2))
        mixed = hvd.allreduce(values().cuda(), op=hvd.Adasum, name=f"adasum.{turn}")
        assert torch.equal(mixed.cpu(), hvd.allreduce(values(), op=hvd.Adasum, name=f"on the CPU.{turn}"))
    found("right")


@program
def begins_anew() -> None:
    """A rank fails before its input is there; the next world of the same processes trains on, on the GPU."""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1).cuda()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0, has_failed=False)
    failed: list[int] = []

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.step < 6:
            optimizer.zero_grad()
            if state.step == 3 and hvd.rank() == 1 and not failed:
                failed.append(state.step)
                raise hvd.HorovodInternalError("something has gone wrong on this rank")
            model(torch.full((2, 4), float(state.step + hvd.rank()), device="cuda")).square().mean().backward()
            optimizer.step()
            state.step += 1
            state.commit()

    train(state)
    everyone = hvd.allgather_object(torch.cat([each.flatten() for each in model.parameters()]).tolist())
    assert len({str(each) for each in everyone}) == 1, everyone
    found("right")


def wait_for_all(folder: Path) -> None:
    """A barrier that a failure of the world does not end."""
    (folder / str(hvd.rank())).touch()
    while len(list(folder.iterdir())) < hvd.size():
        time.sleep(0.01)


@program
def never_ends(where: str) -> None:
    """Rank 1's kernel never ends. No rank leaves, which others would hear of, before all have their error."""
    folder = Path(where)
    mine = values().cuda()
    hvd.allreduce(mine, name="first")
    if hvd.rank() == 1:
        mine = with_work_that_never_ends()
    try:
        hvd.allreduce(mine, name="second")
    except CirandaError as error:
        found(f"rank {hvd.rank()}: {type(error).__name__}: {error}")
        wait_for_all(folder)
        leave_at_once()
    raise AssertionError("the call succeeded")


@program
def illegal_address(where: str) -> None:
    """Rank 1's own work on its GPU touches an address that is none, before its call reads what it makes."""
    mine = values().cuda()
    hvd.allreduce(mine, name="first")
    wait_for_all(Path(where))  # or another may hear of the fault in that call
    if hvd.rank() == 1:
        fail_on_the_gpu(mine)
    try:
        hvd.allreduce_(mine, name="second")
    except CirandaError as error:
        found(f"rank {hvd.rank()}: {type(error).__name__}: {error}")
    else:
        raise AssertionError("the call succeeded")
    if hvd.rank() != 1:
        assert torch.equal(mine.cpu(), values()), "a tensor was written to after its call had failed"
    found("ends")  # as usual, though nothing can be freed on such a GPU


@program
def careless(where: str) -> None:
    """Rank 1 gives two tensors of a call the same memory, which the comparison of results sees, or does not."""
    for turn in range(20):
        assert hvd.allreduce(torch.ones(100, device="cuda"), op=hvd.Sum, name=f"fine.{turn}")[0].item() == hvd.size()
    first, second = torch.ones(4, device=where), torch.full((4,), 5.0, device=where)
    if hvd.rank() == 1:
        first = second = torch.ones(4, device=where)
    try:
        hvd.grouped_broadcast_([first, second], root_rank=0, name="pair")
        for _ in range(20):
            hvd.allreduce(torch.ones(3, device="cuda"), name="later")
    except CirandaError as error:
        found(f"{type(error).__name__}: {error}")
    assert hvd.allreduce(torch.ones(3, device="cuda"), op=hvd.Sum, name="after")[0].item() == hvd.size()
    found("right")


@program
def overwritten() -> None:
    """A stream of rank 0 writes to a tensor that the engine has, which other ranks have not come to yet."""
    mine = values(1 << 20).cuda()
    handles = []
    if hvd.rank() == 0:
        handles.append(hvd.allreduce_async_(mine, name="mine"))
        with torch.cuda.stream(torch.cuda.Stream()):
            mine.fill_(7)
    hvd.barrier()
    if hvd.rank() > 0:
        handles.append(hvd.allreduce_async_(mine, name="mine"))
    hvd.synchronize(*handles)


@program
def freed() -> None:
    """Tensors are dropped after the call; what takes their memory next does not change the result."""
    for turn in range(50):
        mine = values().cuda() + turn
        handle = hvd.allreduce_async(mine, op=hvd.Sum, name="mine")
        del mine
        torch.full((1000,), -1.0, device="cuda")
        result = hvd.synchronize(handle)
        expected = sum(torch.arange(1000.0) + rank + turn for rank in range(hvd.size()))
        assert torch.equal(result.cpu(), torch.as_tensor(expected)), turn
    found("right")


@program
def never_waited_for() -> None:
    """Thousands of calls that nobody waits for, in memory for a few hundred."""
    mine = torch.ones(1 << 14, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for turn in range(10_000):
        hvd.allreduce_async(mine, name=f"call.{turn % 100}")
        if turn % 100 == 99:
            hvd.barrier()
    torch.cuda.synchronize()
    hvd.barrier()
    assert hvd.allreduce(mine, op=hvd.Sum, name="last")[0].item() == hvd.size()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 4 * mine.nbytes, torch.cuda.memory_allocated() - before
    found("no leak")


@program
def shapes() -> None:
    """Not contiguous, empty, misaligned, complex: the bits of the CPU. float8 is moved, and not added."""

    def same(what: object, on_gpu: torch.Tensor, on_cpu: torch.Tensor) -> None:
        assert on_gpu.is_cuda, what
        assert torch.equal(on_gpu.cpu(), on_cpu), what

    rank = hvd.rank()
    matrix = torch.arange(60.0).reshape(6, 10) + rank
    for name, view in {
        "transposed": lambda tensor: tensor.t(),
        "columns": lambda tensor: tensor[:, ::3],
        "rows": lambda tensor: tensor[1::2],
        "expanded": lambda tensor: tensor[:1].expand(4, 10),
        "empty": lambda tensor: tensor[:0],
        "scalar": lambda tensor: tensor[0, 0],
    }.items():
        same(name, hvd.allreduce(view(matrix.cuda())), hvd.allreduce(view(matrix)))
        if name != "scalar":
            same(name, hvd.allgather(view(matrix.cuda())), hvd.allgather(view(matrix)))
    numbers = torch.arange(200, dtype=torch.uint8) + rank
    several = [(offset, numbers[offset : offset + 101]) for offset in range(1, 16)]
    for offset, part in several:
        on_gpu = numbers.cuda()[offset : offset + 101]
        assert on_gpu.data_ptr() % 16 == offset
        same(offset, hvd.allreduce_(on_gpu, op=hvd.Sum), hvd.allreduce(part, op=hvd.Sum))
    together = [numbers.cuda()[offset : offset + 101] for offset, _ in several]
    expected = hvd.grouped_allreduce([part for _, part in several], op=hvd.Sum)
    for on_gpu, on_cpu in zip(hvd.grouped_allreduce(together, op=hvd.Sum), expected, strict=True):
        same("misaligned, in a group", on_gpu, on_cpu)
    for dtype in (torch.complex64, torch.complex128, torch.bool, torch.float16, torch.bfloat16):
        mine = (torch.arange(33) % 3 + rank).to(dtype)
        op = hvd.Max if dtype == torch.bool else hvd.Sum
        same(dtype, hvd.allreduce(mine.cuda(), op=op), hvd.allreduce(mine, op=op))
    small = (
        torch.arange(8, dtype=torch.uint8).view(torch.float8_e4m3fn)
        if rank == 0
        else torch.zeros(8).to(torch.float8_e4m3fn)
    )
    try:
        hvd.allreduce(small.cuda(), op=hvd.Sum, name="float8")
    except CirandaError as error:
        found(error)
    hvd.allreduce(torch.ones(1, device="cuda"), name="goes on")
    found("right")


@program
def two_gpus() -> None:
    """One call on two GPUs is refused; the next may lie on the other."""
    both = [torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")]
    try:
        hvd.grouped_allreduce(both, name="both")
    except InvalidArgumentError as error:
        found(error)
    for turn in range(4):
        with torch.cuda.device(turn % 2):
            mine = torch.ones(3, device="cuda")
            summed = hvd.allreduce(mine, op=hvd.Sum, name="in turn")
            assert summed.device == mine.device, summed.device
            assert summed.tolist() == [hvd.size()] * 3
    found("right")


@program
def which_gpu() -> None:
    """A rank is on its GPU 0."""
    for turn in range(3):
        assert hvd.allreduce(torch.ones(3, device="cuda"), op=hvd.Sum, name=f"call.{turn}").tolist() == [hvd.size()] * 3
    found("right")


def run(each: str) -> None:
    """A program, whose argument follows '='."""
    name, _, argument = each.partition("=")
    _NAME.append(each)
    PROGRAMS[name](*filter(None, [argument]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which comes when a rank has failed: the others have last words
    for asked in sys.argv[1:]:
        hvd.init()
        if os.environ.get("CIRANDA_GPU_WAY") == "nccl":  # which wants a GPU for each rank
            torch.cuda.set_device(hvd.local_rank())
        run(asked)
        hvd.shutdown()
