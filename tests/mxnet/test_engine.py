"""Collectives as operations of MXNet's engine: what they wait for, what waits for them, and what they fail with."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import pytest
from ranks import Ranks, wait_until

pytestmark = pytest.mark.multiprocess


def _order_is_that_of_the_arrays() -> None:
    from mxnet_ranks import hvd, mx, np

    rank, n = hvd.rank(), hvd.size()
    x = mx.nd.eye(300) * 2
    for _ in range(20):
        x = mx.nd.dot(x, mx.nd.eye(300))
    x *= rank + 1
    total = hvd.allreduce(x, op=hvd.Sum, name="chain")
    after = total + 1
    hvd.allreduce_(x, op=hvd.Sum, name="in place")
    again = x * 3
    wanted = np.eye(300) * 2 * sum(range(1, n + 1))
    np.testing.assert_allclose(after.asnumpy(), wanted + 1)
    np.testing.assert_allclose(again.asnumpy(), wanted * 3)


def _many_in_flight_in_any_order(count: int) -> None:
    from mxnet_ranks import hvd, mx, np

    from ciranda.mxnet._plugin import live_calls

    rank, n = hvd.rank(), hvd.size()
    given = [mx.nd.ones((4,)) * (rank + index) for index in range(count)]
    order = list(range(count))
    random.Random(rank).shuffle(order)
    results: dict[int, Any] = {}
    for index in order:
        results[index] = hvd.allreduce(given[index], op=hvd.Sum, name=f"many.{index}", priority=-index)
    for index, result in results.items():
        assert result.asnumpy()[0] == sum(each + index for each in range(n)), index
    del results, given
    mx.nd.waitall()
    wait_until(lambda: live_calls() == 0)
    np.testing.assert_array_equal(hvd.allreduce(mx.nd.ones((2,)), name="after").asnumpy(), [1, 1])


def _convolutions_keep_their_layout() -> None:
    """What oneDNN has written is in a layout of its own."""
    from mxnet_ranks import all_rows, hvd, mx, np

    shape = (2, 8, 10, 10)
    weight = mx.nd.array(np.random.default_rng(5).normal(size=(16, 8, 3, 3)).astype("f"))

    def convolved(array: Any) -> Any:
        return mx.nd.Convolution(mx.nd.array(array), weight, kernel=(3, 3), num_filter=16, no_bias=True)

    wanted = np.mean([convolved(each).asnumpy() for each in all_rows(shape)], axis=0)
    mine = convolved(all_rows(shape)[hvd.rank()])
    hvd.allreduce_(mine, name="layout")
    np.testing.assert_allclose(mine.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def _weights_that_convolutions_lay_out_anew() -> None:
    """A convolution that has been asked for changes the layout of its weights when it is carried out."""
    from mxnet_ranks import hvd, mx, np

    rank, n = hvd.rank(), hvd.size()
    values = np.random.default_rng(6).normal(size=(64, 32, 3, 3)).astype("f")
    images = mx.nd.array(np.random.default_rng(7).normal(size=(4, 32, 20, 20)).astype("f"))
    for turn in range(8):
        weight = mx.nd.array(values * (rank + 1))
        for _ in range(4):
            mx.nd.Convolution(images, weight, kernel=(3, 3), num_filter=64, no_bias=True)
        if turn % 4 == 0:
            every = hvd.allgather(weight.reshape((1, -1)), name="laid out").asnumpy()
            np.testing.assert_array_equal(every, [values.ravel() * (each + 1) for each in range(n)])
        elif turn % 4 == 1:
            hvd.broadcast_(weight, 1, name="laid out")
            np.testing.assert_array_equal(weight.asnumpy(), values * 2)
        elif turn % 4 == 2:
            total = hvd.allreduce(weight, op=hvd.Max, name="laid out")
            np.testing.assert_array_equal(total.asnumpy(), np.maximum(values, values * n))
        else:
            first, _ = hvd.alltoall(weight, [64, *[0] * (n - 1)], name="laid out")
            if rank == 0:
                np.testing.assert_array_equal(first.asnumpy()[64:128], values * 2)
        np.testing.assert_array_equal(weight.asnumpy(), values * (2 if turn % 4 == 1 else rank + 1))


def _shutdown_after_calls_that_nobody_has_waited_for() -> None:
    from mxnet_ranks import hvd, mx

    x = mx.nd.ones((200, 200)) / 200
    for _ in range(30):
        x = mx.nd.dot(x, mx.nd.ones((200, 200)))
    after = hvd.allreduce(x, name="last")
    hvd.shutdown()
    assert after.asnumpy().shape == (200, 200)
    hvd.init()


def _views_of_one_array() -> None:
    from mxnet_ranks import hvd, mx, np

    rank, n = hvd.rank(), hvd.size()
    x = mx.nd.array(np.arange(12.0).reshape(6, 2)) * (rank + 1)
    hvd.grouped_allreduce_([x[0:2], x[3:5]], op=hvd.Sum, name="views")
    factor = np.full((6, 1), rank + 1.0)
    factor[[0, 1, 3, 4]] = sum(range(1, n + 1))
    np.testing.assert_allclose(x.asnumpy(), np.arange(12.0).reshape(6, 2) * factor)
    both = hvd.grouped_allreduce([x[0:2], x[0:2]], op=hvd.Sum, name="twice")
    np.testing.assert_array_equal(both[0].asnumpy(), both[1].asnumpy())


def _overlapping_arrays() -> None:
    from mxnet_ranks import hvd, mx, raised

    x = mx.nd.ones((6, 2))
    for arrays in ([x, x], [x[0:3], x[2:4]]):
        error = raised(lambda arrays=arrays: hvd.grouped_allreduce_(arrays, name="overlap"))
        assert isinstance(error, ValueError), repr(error)
        assert "'overlap': two arrays to be written to overlap" in str(error)


def _results_in_the_engines_memory() -> None:
    """Large results are not copied, and their memory is let go of when MXNet needs it no more."""
    import weakref

    from mxnet_ranks import hvd, mx, np

    from ciranda.mxnet import arrays

    lent: list[weakref.ref[Any]] = []
    own = arrays.lend

    def noting(array: Any, dtype: int) -> Any:
        lent.append(weakref.ref(array))
        return own(array, dtype)

    arrays.lend = noting
    rank, n = hvd.rank(), hvd.size()
    shape = (300, 128)
    for dtype in ("float16", "float32", "float64", "uint8", "int8", "int32", "int64"):
        every = hvd.allgather(mx.nd.full(shape, rank + 1, dtype=dtype), name=dtype)
        assert every.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(every.asnumpy()[:: shape[0], 0], np.arange(1, n + 1))
        every += 1  # it can be written to, and computed with
        assert mx.nd.Cast(every, "float32").sum().asscalar() == np.prod(shape) * n * ((n + 1) / 2 + 1)
    kept = hvd.alltoall(mx.nd.full((300 * n, 128), rank), name="kept")
    assert len(lent) == 8
    del every
    mx.nd.waitall()
    last = hvd.allgather(mx.np.ones(shape), name="last")
    assert type(last) is mx.np.ndarray
    assert [reference() is None for reference in lent] == [True] * 7 + [False] * 2
    np.testing.assert_array_equal(kept.asnumpy()[::300, 0], np.arange(n))
    arrays.lend = own


def _results_on_the_context_of_their_arrays() -> None:
    """Whatever the program's current one is, for small results and for those that need not be copied."""
    import itertools

    from mxnet_ranks import hvd, mx

    n = hvd.size()
    for mine, current in ((mx.cpu(0), mx.cpu(1)), (mx.cpu(1), mx.cpu(0))):
        for kind, rows in itertools.product((mx.nd, mx.np), (2 * n, 1000 * n)):
            tensor = kind.ones((rows, 20), ctx=mine)
            with current:
                results = {
                    "allgather": [hvd.allgather(tensor)],
                    "alltoall": [hvd.alltoall(tensor)],
                    "alltoall with splits": hvd.alltoall(tensor, splits=[rows // n] * n),
                }
            for name, found in results.items():
                assert [each.ctx for each in found] == [mine] * len(found), (name, rows, mine)
                assert found[0].asnumpy().sum() == found[0].size


def _arrays_of_numpy_without_its_shapes() -> None:
    """MXNet lets nobody deactivate NumPy's shapes while its arrays are active."""
    from mxnet_ranks import hvd, mx

    with mx.util.np_array(True):
        assert not mx.util.is_np_shape()
        assert hvd.allreduce(mx.np.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
        assert hvd.allgather(mx.np.ones(3)).size == 3 * hvd.size()
        assert not mx.util.is_np_shape()


def _gradients_of_numpy_arrays() -> None:
    """The ranks bring (rank, 0), of which the last rank's and all of them are the greatest."""
    from mxnet_ranks import hvd, mx, np

    rank, n = hvd.rank(), hvd.size()
    wanted = {
        "min": (hvd.Min, [n * (rank == 0), 1]),
        "max": (hvd.Max, [n * (rank == n - 1), 1]),
        "sum": (hvd.Sum, [n, n]),
    }
    for name, (op, gradient) in wanted.items():
        for factor in (1.0, 2.0):
            x = mx.np.array([rank, 0.0], dtype="float32")
            x.attach_grad()
            with mx.autograd.record():
                y = hvd.allreduce(x, op=op, name=f"{name}.{factor}", prescale_factor=factor)
            assert type(y) is mx.np.ndarray
            y.backward()
            np.testing.assert_array_equal(x.grad.asnumpy(), np.array(gradient) * factor, err_msg=name)
    x = mx.np.array([rank, 0.0], dtype="float32")
    x.attach_grad()
    with mx.autograd.record():
        y = hvd.broadcast(x, root_rank=1, name="broadcast")
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.full(2, rank == 1))


def _join_comes_after_what_waits() -> None:
    """On rank 1 an allreduce waits for another one, which rank 0 makes late, when that rank joins."""
    from mxnet_ranks import hvd, mx

    rank, n = hvd.rank(), hvd.size()
    pair = hvd.add_process_set([0, 1])
    x = mx.nd.ones((2,))
    if rank < 2:
        time.sleep(0.5 * (rank == 0))
        x = hvd.allreduce(x, op=hvd.Average, name="first", process_set=pair)
    total = hvd.allreduce(x, op=hvd.Sum, name="second")
    if rank != 1:
        total.wait_to_read()
        hvd.allreduce(mx.nd.ones((2,)), name="without rank 1").wait_to_read()
    hvd.join()
    assert total.asnumpy()[0] == n
    hvd.remove_process_set(pair)


def _bad_calls() -> None:
    from mxnet_ranks import hvd, mx, np, raised

    x, rank = mx.nd.ones((4, 3)), hvd.rank()
    pair = hvd.add_process_set([0, 1])
    attempts = {
        "not np.ndarray": (lambda: hvd.allreduce(np.ones(3)), "ndarray"),
        "not a list": (lambda: hvd.grouped_allreduce(x), "list"),
        "sparse": (lambda: hvd.allreduce(x.tostype("row_sparse"), name="s"), "tostype"),
        "sparse gather": (lambda: hvd.allgather(x.tostype("row_sparse"), name="s"), "tostype"),
        "op": (lambda: hvd.allreduce(x, op=77, name="o"), "77"),
        "dtype": (lambda: hvd.allreduce(mx.nd.ones((2,), dtype="int32"), op=hvd.Adasum, name="d"), "int32"),
        "root": (lambda: hvd.broadcast(x, root_rank=9), "root_rank 9"),
        "average": (lambda: hvd.allreduce(x, average=True, op=hvd.Sum), "average"),
        "splits": (lambda: hvd.alltoall(x, splits=[1.5, 2.5, 0.0]), "whole numbers"),
        "splits sum": (lambda: hvd.alltoall(x, splits=[1, 1, 1]), "add up"),
        "name": (lambda: hvd.allreduce(x, name=""), "must not be empty"),
        "scalar": (lambda: hvd.reducescatter(_scalar(), name="scalar"), "scalar"),
    }
    if rank == 2:
        attempts["set"] = (lambda: hvd.allreduce(x, process_set=pair, name="set"), "rank 2 is not in process set")
    else:
        attempts["root"] = (lambda: hvd.broadcast(x, 2, process_set=pair, name="root"), "root rank 2 is not in")
    for what, (attempt, text) in attempts.items():
        error = raised(attempt)
        assert isinstance(error, ValueError), (what, repr(error))
        assert text in str(error), (what, error)
    hvd.remove_process_set(pair)
    _names_in_use()
    assert hvd.allreduce(x, name="n" * 2000).asnumpy()[0, 0] == 1


def _scalar() -> Any:
    from mxnet_ranks import mx

    with mx.util.np_shape(True):
        return mx.nd.ones(())


def _names_in_use() -> None:
    from mxnet_ranks import hvd, mx, raised

    if hvd.rank() == 0:
        hvd.barrier()
        first = hvd.allreduce(mx.nd.ones((2,)), name="used")
    else:
        first = hvd.allreduce(mx.nd.ones((2,)), name="used")
        error = raised(lambda: hvd.allreduce(mx.nd.ones((2,)), name="used"))
        assert isinstance(error, ValueError), repr(error)
        assert "'used': the name is in use" in str(error)
        hvd.barrier()
    assert first.asnumpy()[0] == 1
    x = mx.nd.ones((2,)) * (hvd.rank() + 1)
    for _ in range(10):  # each waits for the one before
        hvd.allreduce_(x, name="used")
        x *= 2
    assert x.asnumpy()[0] == 1024 * (hvd.size() + 1) / 2


def _failures_come_where_mxnet_raises() -> None:
    from mxnet_ranks import hvd, mx, raised

    rank = hvd.rank()
    bad = hvd.allreduce(mx.nd.ones((2 + (rank == 1),)), name="shapes")
    good = hvd.allreduce(mx.nd.ones((2,)), name="good")
    later = bad * 2
    error = raised(later.asnumpy)
    assert isinstance(error, mx.base.MXNetError)
    assert isinstance(error, hvd.errors.MismatchError)
    assert "'shapes'" in str(error)
    assert "rank 1" in str(error)
    last = hvd.last_error()
    assert type(last) is hvd.errors.MismatchError
    assert "'shapes'" in str(last)
    assert good.asnumpy()[0] == 1
    pair = hvd.grouped_allreduce([mx.nd.ones((2 + (rank == 1),), dtype="int32"), mx.np.ones((2,))], name="pair")
    assert all(isinstance(raised(each.asnumpy), hvd.errors.MismatchError) for each in pair)
    # An array that has failed on one rank: the others must hear of it.
    broken = hvd.allreduce(mx.nd.ones((2 + (rank == 1),)), name="broken")
    if rank == 0:
        mx.nd.ones((2,)).wait_to_read()
        onward = hvd.allreduce(broken, name="onward")
    else:
        raised(broken.asnumpy)
        onward = hvd.allreduce(mx.nd.ones((2,)), name="onward")
    error = raised(onward.asnumpy)
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    with contextlib.suppress(mx.base.MXNetError):
        mx.nd.waitall()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(mx.nd.ones((2,)), name="anew").asnumpy()[0] == 1


def _arrays_that_have_failed_raise_again() -> None:
    """MXNet itself raises once, whichever of them is read first. Until something is written to them."""
    from mxnet_ranks import hvd, mx, raised

    from ciranda.mxnet._plugin import pushed_names

    def given() -> Any:
        return mx.nd.ones((2 + (hvd.rank() == 1),))

    reduced = hvd.allreduce(given(), name="reduced")
    later = reduced * 2
    chained = hvd.allreduce(reduced, name="chained")
    in_place, sent, gradient, view = given(), given(), given(), mx.np.ones((4, 2))
    hvd.allreduce_(in_place, name="in place")
    hvd.broadcast_(sent, 1, name="sent")
    hvd.grouped_allreduce_([gradient, view[1:3]], name="group")
    gradient *= 2  # of which MXNet leaves these out, as long as nothing has been raised
    hvd.allreduce_(in_place, name="in place")
    while pushed_names():
        time.sleep(0.001)
    own = {"later": later, "chained": chained, "gradient": gradient, "view": view}
    for name, array in {**own, "reduced": reduced, "in place": in_place, "sent": sent}.items():
        for read in (array.wait_to_read, array.asnumpy, array.wait_to_read, array.asnumpy):
            error = raised(read)
            assert isinstance(error, hvd.errors.MismatchError), (name, repr(error))
            assert isinstance(error, mx.base.MXNetError), name
            assert "rank 1" in str(error), (name, error)
    other = hvd.allreduce(mx.nd.ones((3,)), name="other")
    assert other.asnumpy().tolist() == [1] * 3
    for array in (reduced, in_place, sent, view, later, chained, gradient):
        array[:] = 3
        array.wait_to_read()
        assert array.asnumpy().min() == 3
    hvd.allreduce_(view, op=hvd.Sum, name="written")
    assert view.asnumpy().max() == 3 * hvd.size()
    _also_after_waitall()


def _also_after_waitall() -> None:
    from mxnet_ranks import hvd, mx, raised

    array = mx.nd.ones((2 + (hvd.rank() == 1),))
    hvd.allreduce_(array, name="waited for")
    array *= 2
    assert isinstance(raised(mx.nd.waitall), hvd.errors.MismatchError)
    for _ in range(2):
        assert "'waited for'" in str(raised(array.asnumpy))
    array += 1
    array.asnumpy()


def _failures_of_calls_that_wait() -> None:
    """They, too, are MXNetErrors, which scripts of Horovod catch; last_error() knows them, and they can be pickled."""
    import pickle

    from mxnet_ranks import hvd, mx, raised

    rank, n = hvd.rank(), hvd.size()
    kinds = {
        "shapes": (lambda: hvd.allgather(mx.nd.ones((2, 2 + rank)), name="shapes"), hvd.errors.MismatchError),
        "splits": (lambda: hvd.alltoall(mx.nd.ones((n,)), [2] * n, name="splits"), ValueError),
        "root": (lambda: hvd.broadcast(mx.nd.ones((2,)), n, name="root"), ValueError),
    }
    for name, (call, kind) in kinds.items():
        error = raised(call)
        assert isinstance(error, mx.base.MXNetError), name
        assert isinstance(error, kind), repr(error)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
    assert type(hvd.last_error()) is hvd.errors.MismatchError
    assert "'shapes'" in str(hvd.last_error())


def test_the_engine(three: Ranks) -> None:
    three.run(_order_is_that_of_the_arrays)
    three.run(_many_in_flight_in_any_order, 500)
    three.run(_convolutions_keep_their_layout)
    three.run(_weights_that_convolutions_lay_out_anew)
    three.run(_views_of_one_array)
    three.run(_results_in_the_engines_memory)
    three.run(_results_on_the_context_of_their_arrays)
    three.run(_arrays_of_numpy_without_its_shapes)
    three.run(_gradients_of_numpy_arrays)


def test_join(three: Ranks) -> None:
    three.run(_join_comes_after_what_waits, timeout=20)


def test_bad_calls(three: Ranks) -> None:
    three.run(_bad_calls)
    three.run(_overlapping_arrays)


def test_failures(three: Ranks) -> None:
    three.run(_failures_come_where_mxnet_raises)
    three.run(_arrays_that_have_failed_raise_again)
    three.run(_failures_of_calls_that_wait)
    three.run(_shutdown_after_calls_that_nobody_has_waited_for)
