"""Which stream waits for what, as users of streams meet it: threads, default streams, what is dropped and overwritten.

The ranks have arrays of the stand-in for CuPy on the fake driver, whose checker ends a rank that orders two uses of
memory by luck. They import no torch.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_cuda.build
from ranks import Ranks

import ciranda as hvd
from ciranda.errors import MismatchError

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

N = 1000
LEGACY, PER_THREAD = 1, 2
WAYS = ("staged", "peer")
# What is first of the comparison of a second call: the stream of results, behind the default one, the lane's and that
# of copies to the host; and the second of six operations.
COMPARING, COMPARED = 4, 8


def _ranks(way: str, **settings: str) -> Ranks:
    modules = Path(torch_cuda.__file__).parents[1] / "modules"
    environment = {
        "LD_LIBRARY_PATH": str(torch_cuda.build.driver().parent),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(modules), os.environ.get("PYTHONPATH")])),
        "CIRANDA_GPU_WAY": way,
        "FAKE_CUDA_DELAY_SEED": "5",
    }
    return Ranks(2, env=environment | settings)


def _in_another_thread(function: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure


def _values(turn: int) -> Any:
    return np.arange(N, dtype=np.float32) + hvd.rank() + turn


def _sum(turn: int) -> Any:
    return 2 * np.arange(N, dtype=np.float32) + 1 + 2 * turn


def waited_for_by_another_thread(submitting: int | None, waiting: int | None) -> str:
    """Each works in a stream of this number, or in one of its own."""
    import cupy

    def stream(number: int | None) -> Any:
        return cupy.cuda.Stream() if number is None else cupy.cuda.ExternalStream(number)

    for turn in range(5):
        with stream(submitting):
            array = cupy.asarray(_values(turn))
            handles = [hvd.allreduce_async(array, op=hvd.Sum, name="sum"), hvd.allgather_async(array, name="rows")]
            del array
            cupy.asarray(_values(turn) - 7)  # has the memory of the input

        def wait(handles: list[Any] = handles, turn: int = turn) -> None:
            with stream(waiting):
                summed, rows = (hvd.synchronize(handle) for handle in handles)
                assert np.array_equal(summed.get(), _sum(turn))
                assert np.array_equal(rows.get()[N:], _values(turn) + 1 - hvd.rank())

        _in_another_thread(wait)
    return "right"


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_orders_the_stream_of_the_thread_that_waits(way: str, request: pytest.FixtureRequest) -> None:
    """Also the default streams: the one of all threads, and those of each."""
    if way == "peer":
        request.getfixturevalue("kernels_of_gpus")
    with _ranks(way) as ranks:
        for streams in ((None, None), (None, LEGACY), (LEGACY, PER_THREAD), (PER_THREAD, PER_THREAD)):
            assert ranks.run(waited_for_by_another_thread, *streams) == ["right"] * 2, streams


def dropped_by_another_thread(stream: int) -> str:
    """What a thread's stream still reads stays as it is, whoever drops it; the next result may have its memory."""
    import cupy
    import driver

    with cupy.cuda.ExternalStream(stream):
        array = cupy.asarray(_values(0))
        for turn in range(20):
            results = [hvd.allgather(array, name="rows")]
            copy = driver.Block(results[0].nbytes, stream)
            source, target = results[0]._memory.address, copy.address
            driver.call("cuMemcpyAsync", *map(ctypes.c_uint64, (target, source, results[0].nbytes, stream)))
            _in_another_thread(results.clear)
            hvd.allgather(array, name="rows")
            content = driver.fetch(copy.address, 2 * array.nbytes, stream).view(np.float32)
            assert np.array_equal(content[hvd.rank() * N :][:N], _values(0)), turn
    return "right"


@pytest.mark.parametrize("stream", [LEGACY, PER_THREAD], ids=["legacy", "per thread"])
def test_a_result_may_be_dropped_by_another_thread(stream: int) -> None:
    with _ranks("staged") as ranks:
        assert ranks.run(dropped_by_another_thread, stream) == ["right"] * 2


def overwritten_on_rank_1(begins: str) -> str:
    """Another stream writes to a result that nobody has waited for, before it is compared with the other rank's."""
    import cupy
    import driver

    library = driver._library()
    hvd.allreduce(cupy.asarray(_values(0)), op=hvd.Sum, name="first")
    array, other = cupy.asarray(_values(0)), cupy.asarray(_values(7))
    hvd.barrier()
    if hvd.rank() == 1:
        library.fake_cuda_set(b"FAKE_CUDA_STILL", f"{COMPARING}:{COMPARED}:{begins}".encode())
    handle = hvd.allreduce_async_(array, op=hvd.Sum, name="second")
    if hvd.rank() == 1:
        while library.fake_cuda_n_calls_of(b"cuMemsetD8Async") == 0:  # the first of a comparison
            time.sleep(0.001)
        with cupy.cuda.Stream():
            cupy.copyto(array, other)
        Path(begins).touch()
    try:
        hvd.synchronize(handle)
    except MismatchError as error:
        return str(error)
    return "not noticed"


def test_a_result_that_is_overwritten_is_found_by_the_comparison(tmp_path: Path, kernels_of_gpus: None) -> None:
    """Without the fake's checker, which no GPU has."""
    settings = {"CIRANDA_CHECK_CONSISTENCY": "1", "FAKE_CUDA_CHECK": "0", "FAKE_CUDA_DELAY_SEED": "0"}
    with _ranks("peer", **settings) as ranks:
        found = ranks.run(overwritten_on_rank_1, str(tmp_path / "begins"))
    text = "The result of allreduce 'second' has other bits on rank 1 than on rank"
    assert [text in each for each in found] == [True] * 2, found
