"""The NumPy interface in a world of one: arguments, types, memory. Several ranks: tests/multiprocess."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ciranda as hvd
from ciranda.errors import InvalidArgumentError, NotInitializedError, NotSupportedError

pytestmark = pytest.mark.usefixtures("alone")


def test_without_a_world_every_call_says_so() -> None:
    hvd.shutdown()
    for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.barrier, lambda: hvd.allreduce(1.0)):
        with pytest.raises(NotInitializedError, match="has not been initialized"):
            call()
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.is_initialized()


def test_a_world_of_one() -> None:
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (
        0,
        1,
        0,
        1,
        0,
        1,
    )
    hvd.init(comm=[0])
    for comm in (object(), "world", [object()]):
        with pytest.raises(InvalidArgumentError, match="give a communicator of mpi4py, the list of all ranks, or None"):
            hvd.init(comm=comm)  # type: ignore[arg-type]
    hvd.shutdown()
    with pytest.raises(NotSupportedError, match=r"init\(comm=\[0, 1\]\): a world of 1 ranks cannot be joined by some"):
        hvd.init(comm=[0, 1])
    hvd.init()


def test_it_ends_well_whatever_the_settings_have_become(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CIRANDA_AUTOTUNE_LOG", str(tmp_path / "no such folder" / "log.csv"))
    hvd.shutdown()
    assert "cannot write CIRANDA_AUTOTUNE_LOG=" in capfd.readouterr().err
    hvd.init()
    monkeypatch.setenv("CIRANDA_FUSION_THRESHOLD", "none at all")
    hvd.shutdown()
    assert not hvd.is_initialized()


@pytest.mark.parametrize("tensor", [3, 2.5, True, [1, 2], [[1.0], [2.0]], np.float16(1.5), np.zeros((0, 3), np.int8)])
def test_whatever_numpy_makes_an_array_of(tensor: object) -> None:
    array = np.asarray(tensor)
    result = hvd.allreduce(array, op=hvd.Max)
    assert result.dtype == array.dtype
    assert result.shape == array.shape
    np.testing.assert_array_equal(result, array)
    np.testing.assert_array_equal(hvd.broadcast(array, 0), array)


def test_results_are_new_memory_and_in_place_is_not() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert not np.shares_memory(hvd.allreduce(array), array)
    assert not np.shares_memory(hvd.allgather(array), array)
    assert hvd.allreduce_(array, op=hvd.Sum, postscale_factor=2.0) is array
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3) * 2)


def test_in_place_needs_a_writable_array() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    np.testing.assert_array_equal(hvd.allreduce(array), array)
    with pytest.raises(InvalidArgumentError, match="read-only"):
        hvd.allreduce_(array)
    with pytest.raises(InvalidArgumentError, match="list"):
        hvd.broadcast_([1.0], 0)  # type: ignore[arg-type]


def test_masks_are_not_lost_in_silence() -> None:
    masked = np.ma.masked_array([1.0, 1e20], mask=[False, True])
    for call in (hvd.allreduce, hvd.allgather, hvd.allreduce_):
        with pytest.raises(InvalidArgumentError, match="masked arrays"):
            call(masked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op": "sum"}, "op must be Average, Sum, Min, Max or Product, not 'sum'"),
        ({"name": 3}, "name must be text, .* or None, not 3"),
        ({"name": "\udc80"}, r"name must be text, which can be written as UTF-8, or None, not '.udc80'"),
        ({"prescale_factor": "2"}, "prescale_factor must be a number, not '2'"),
        ({"weight": [1.0]}, r"weight must be a number or None, not \[1.0\]"),
        ({"process_set": 0}, r"process_set must be a ProcessSet, as add_process_set\(\) returns it, not 0"),
    ],
)
def test_an_argument_of_another_type_is_named(options: dict[str, Any], message: str) -> None:
    for call in (hvd.allreduce, hvd.allreduce_async, hvd.grouped_allreduce):
        with pytest.raises(TypeError, match=message):
            call(np.ones(2), **options)
    with pytest.raises(TypeError, match="root_rank must be a whole number, not 0"):
        hvd.broadcast(np.ones(2), root_rank=0.0)  # type: ignore[arg-type]


def test_gathered_memory_outlives_everything() -> None:
    gathered = hvd.allgather(np.arange(1000))
    hvd.shutdown()
    gc.collect()
    np.testing.assert_array_equal(gathered, np.arange(1000))
    gathered += 1
    hvd.init()


def test_nothing_is_kept_after_an_operation() -> None:
    array = np.ones(10)
    before = sys.getrefcount(array)
    hvd.allreduce_(array)
    handle = hvd.allreduce_async_(array)
    handle.wait()
    del handle
    assert sys.getrefcount(array) == before
    reference = weakref.ref(array)
    hvd.allreduce_async(array)
    del array
    hvd.barrier()
    assert reference() is None


def test_bfloat16_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    for result in (hvd.allreduce(array), hvd.allgather(array), hvd.broadcast(array, 0)):
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize(
    "tensor", [np.ones(2, np.clongdouble), np.array(["a"]), np.array([None]), np.ones(2, "datetime64[s]"), {1: 2}]
)
def test_types_that_cannot_be_communicated(tensor: object) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be combined"):
        hvd.allreduce(tensor)  # type: ignore[arg-type]


def test_what_is_not_there_yet_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="has not been added"):
        hvd.allreduce(1.0, process_set=hvd.ProcessSet([0]))
    with pytest.raises(InvalidArgumentError, match="twice"):
        hvd.ProcessSet([1, 1])
    for no_ranks in ("0, 1", object()):
        with pytest.raises(InvalidArgumentError, match="a ProcessSet is made of a sequence of ranks or a communicator"):
            hvd.ProcessSet(no_ranks)  # type: ignore[arg-type]
    for several in (hvd.grouped_alltoall, lambda tensors, splits: hvd.grouped_scatter(tensors, 0, splits)):
        with pytest.raises(InvalidArgumentError, match="there are 1 tensors but splits for 2"):
            several([np.ones(2)], [[2], [2]])


def test_a_process_set_of_any_iterable() -> None:
    for ranks in (range(2), (rank for rank in (1, 0)), {1, 0}, {0: "a", 1: "b"}.keys(), np.array([1, 0]), iter((0, 1))):
        assert hvd.ProcessSet(ranks).ranks == [0, 1]
    with pytest.raises(InvalidArgumentError, match=r"twice in the process set \[2, 2\]"):
        hvd.ProcessSet(iter((2, 2)))
    for no_ranks in ([0.5], ["1"], np.eye(2)):
        with pytest.raises(InvalidArgumentError, match="are integers; got"):
            hvd.ProcessSet(no_ranks)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="sequence of ranks"):
        hvd.ProcessSet(b"\0\1")


def test_a_result_can_be_asked_for_twice() -> None:
    handle = hvd.allreduce_async(np.ones(2))
    assert hvd.synchronize(handle) is hvd.synchronize(handle)
    assert hvd.poll(handle)


def test_objects() -> None:
    assert hvd.broadcast_object({"a": [1, 2]}) == {"a": [1, 2]}
    assert hvd.allgather_object("x") == ["x"]
    with pytest.raises(InvalidArgumentError, match="root_rank 1"):
        hvd.broadcast_object(1, root_rank=1)
