"""A rank ends, or stops, in each stage of a collective in GPUs' memory.

The ranks have arrays of the stand-in for CuPy on the fake driver, so they import no torch.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch_cuda.build
from ranks import Ranks

import ciranda as hvd
from ciranda import _core
from ciranda.errors import CirandaError

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300), pytest.mark.usefixtures("kernels_of_gpus")]

N = 1200  # float32: one chunk, in which each rank reduces its share
ROOT, NEIGHBOUR, VICTIM = range(3)
STREAM = 2  # of the lane: the default one comes first
NEVER = "/nonexistent/begins"


class Phase(NamedTuple):
    """Where the victim stands.

    Attributes:
        collective: of CALLS.
        n_waits: what its stream waits for before the first stage: the input, and the memory of a result.
        n_stages: of the victim.
        stage: in which it ends, from 0 on.
        how: it ends, of ENDINGS.
        failing: the ranks that need what it does in this stage; the others' calls are done.
    """

    collective: str
    n_waits: int
    n_stages: int
    stage: int
    how: str
    failing: tuple[int, ...]

    @property
    def operation(self) -> int:
        """Of the stream, in its second call: each stage has two, and the first call had as many."""
        return 2 * self.n_waits + 2 * self.n_stages + 1 + 2 * self.stage


PHASES = [
    Phase("allreduce", 1, 3, 0, "killed", (0, 1)),
    Phase("allreduce", 1, 3, 1, "killed", (0, 1)),
    Phase("allreduce", 1, 3, 1, "stops", (0, 1)),
    Phase("allreduce", 1, 3, 2, "exits", ()),
    Phase("allgather", 2, 2, 0, "killed", (0, 1)),
    Phase("allgather", 2, 2, 1, "exits", ()),
    Phase("alltoall", 2, 2, 0, "leaves", (0, 1)),
    Phase("alltoall", 2, 2, 1, "killed", ()),
    Phase("reducescatter", 2, 2, 0, "exits", (0, 1)),
    Phase("reducescatter", 2, 2, 1, "leaves", ()),
    Phase("scan", 1, 2, 0, "killed", (0, 1)),
    Phase("scan", 1, 2, 1, "exits", ()),
    Phase("reduce", 1, 2, 0, "leaves", (0, 1)),
    Phase("reduce", 1, 2, 1, "killed", (0,)),
    Phase("broadcast", 1, 1, 0, "exits", ()),
    Phase("broadcast from the victim", 1, 1, 0, "leaves", (0, 1)),
    Phase("gather", 1, 1, 0, "killed", (0,)),
    Phase("to the victim", 1, 1, 0, "exits", ()),
    Phase("from the victim", 1, 1, 0, "leaves", (1,)),
]


def _transfer(array: Any, name: str, sender: int, receiver: int) -> Any:
    if hvd.rank() == sender:
        return hvd.send_async(array, receiver, name=name)
    return hvd.recv_async(array, sender, name=name) if hvd.rank() == receiver else None


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "allreduce": lambda array, name: hvd.allreduce_async_(array, op=hvd.Sum, name=name),
    "allgather": lambda array, name: hvd.allgather_async(array, name=name),
    "alltoall": lambda array, name: hvd.alltoall_async(array, name=name),
    "reducescatter": lambda array, name: hvd.reducescatter_async(array, op=hvd.Sum, name=name),
    "scan": lambda array, name: hvd.scan_async(array, op=hvd.Sum, name=name),
    "reduce": lambda array, name: hvd.reduce_async_(array, ROOT, op=hvd.Sum, name=name),
    "broadcast": lambda array, name: hvd.broadcast_async_(array, ROOT, name=name),
    "broadcast from the victim": lambda array, name: hvd.broadcast_async_(array, VICTIM, name=name),
    "gather": lambda array, name: hvd.gather_async(array, ROOT, name=name),
    "to the victim": lambda array, name: _transfer(array, name, NEIGHBOUR, VICTIM),
    "from the victim": lambda array, name: _transfer(array, name, VICTIM, NEIGHBOUR),
}
ENDINGS: dict[str, Callable[[], None]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: os._exit(0),
    "leaves": hvd.shutdown,
    "stops": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}
ERRORS = {
    "killed": "RanksLostError: rank 2 ",
    "exits": "RanksLostError: rank 2 ",
    "leaves": "AbortedError: rank 2 ",
    "stops": "TimeoutError: allreduce 'second' began on all ranks but has not moved",
}


def _values() -> Any:
    return np.arange(N, dtype=np.float32) + 100 * hvd.rank()


def _await(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def _make_call(collective: str, array: Any, name: str) -> None:
    handle = CALLS[collective](array, name)
    if handle is not None:
        hvd.synchronize(handle)


def _end_in(phase: Phase, done: Path) -> None:
    """The victim. It ends when it has come to the stage, and the others to the end of what they can do without it."""
    import cupy

    driver = ctypes.CDLL("libcuda.so.1")
    _make_call(phase.collective, cupy.asarray(_values()), "first")
    array = cupy.asarray(_values())
    driver.fake_cuda_set(b"FAKE_CUDA_STILL", f"{STREAM}:{phase.operation}:{NEVER}".encode())
    CALLS[phase.collective](array, "second")
    _await(lambda: driver.fake_cuda_n_calls_of(b"cuLaunchKernel") > phase.stage)
    _await(lambda: len(list(done.iterdir())) == 2 - len(phase.failing))
    ENDINGS[phase.how]()
    os._exit(0)


def _go_on(phase: Phase, done: Path, next_world: dict[str, str]) -> list[str]:
    """Another rank: what its calls came to, and in the next world."""
    import cupy

    _make_call(phase.collective, cupy.asarray(_values()), "first")
    rank, before = hvd.rank(), _values()
    array = cupy.asarray(before)
    found = []
    try:
        _make_call(phase.collective, array, "second")
        found.append("done")
        (done / str(rank)).touch()
    except CirandaError as error:
        found.append(f"{type(error).__name__}: {error}")
        assert np.array_equal(array.get(), before), "a tensor was written to"
    try:
        hvd.allreduce(cupy.asarray(before), name="third")
    except CirandaError as error:
        found.append(f"{type(error).__name__}: {error}")
    after = array.get()
    (done.parent / f"failed.{rank}").touch()
    _await(lambda: len(list(done.parent.glob("failed.*"))) == 2)  # a rank that leaves would be named, too
    hvd.shutdown()
    os.environ.update(next_world, CIRANDA_RANK=str(rank), CIRANDA_LOCAL_RANK=str(rank))
    hvd.init()
    summed = hvd.allreduce(cupy.asarray(before), op=hvd.Sum, name="first").get()
    assert np.array_equal(summed, 2 * np.arange(N, dtype=np.float32) + 100)
    assert np.array_equal(array.get(), after), "a tensor was written to after its call had ended"
    hvd.shutdown()
    return [*found, "right"]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: f"{phase.collective}-{phase.stage}-{phase.how}")
def test_a_rank_ends_in_a_stage(phase: Phase, tmp_path: Path) -> None:
    modules = Path(torch_cuda.__file__).parents[1] / "modules"
    settings = {
        "LD_LIBRARY_PATH": str(torch_cuda.build.driver().parent),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(modules), os.environ.get("PYTHONPATH")])),
        "CIRANDA_SLOT_BYTES": "4096",
        "CIRANDA_STALL_WARNING_SECONDS": "1",
        "CIRANDA_STALL_SHUTDOWN_SECONDS": "5" if phase.how == "stops" else "60",  # else errors come by themselves
    }
    with Ranks(3, env=settings) as ranks:
        secret, job = secrets.token_hex(32), secrets.token_hex(8)
        (tmp_path / "secret").write_text(secret)
        (tmp_path / "secret").chmod(0o600)
        (tmp_path / "done").mkdir()
        store = _core.StoreServer(["127.0.0.1"], 0, secret, 2, job)
        next_world = {
            "CIRANDA_STORE": f"127.0.0.1:{store.port}",
            "CIRANDA_SECRET_FILE": str(tmp_path / "secret"),
            "CIRANDA_JOB": job,
            "CIRANDA_SIZE": "2",
            "CIRANDA_LOCAL_SIZE": "2",
            "CIRANDA_STALL_SHUTDOWN_SECONDS": "60",
        }
        ranks.start(VICTIM, _end_in, phase, tmp_path / "done")
        for rank in (ROOT, NEIGHBOUR):
            ranks.start(rank, _go_on, phase, tmp_path / "done", next_world)
        found = [ranks.outcome(rank) for rank in (ROOT, NEIGHBOUR)]
        if phase.how == "stops":
            ranks.signal(VICTIM, signal.SIGKILL)
    error = ERRORS[phase.how]
    for rank, outcome in enumerate(found):
        assert outcome.error is None, outcome.traceback
        second, third, last = outcome.value
        assert second.startswith(error if rank in phase.failing else "done"), second
        assert third.startswith(error), third
        assert last == "right"
