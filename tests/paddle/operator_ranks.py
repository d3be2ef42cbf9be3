"""What ranks run in the tests of the operators."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import paddle
from ranks import wait_until
from writing import close, inputs, raised, run, running, static

import ciranda.paddle as hvd
from ciranda.errors import InvalidArgumentError, MismatchError, NotSupportedError
from ciranda.paddle import _plugin, ops, programs

ROWS = 4
SECONDS_TO_LIVE = 0.5


def _in_program(operator: Callable[[Any], Any], x: Any, weights: Any, is_old: bool) -> list[Any]:
    """Return the result, and the gradient of the sum of weights * result."""
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [None, 3], "float32")
        data.stop_gradient = False
        result = operator(data)
        loss = paddle.sum(paddle.multiply(result, paddle.static.data("weights", [None, 3], "float32")))
        (gradient,) = paddle.static.gradients([loss], [data])
    return run(main, {"x": x, "weights": weights}, [result, gradient])


def _in_dygraph(operator: Callable[[Any], Any], x: Any, weights: Any, _is_old: bool) -> list[Any]:
    tensor = paddle.to_tensor(x, stop_gradient=False)
    result = operator(tensor)
    (result * paddle.to_tensor(weights)).sum().backward()
    return [result.numpy(), tensor.grad.numpy()]


def results_and_gradients(form: str) -> None:
    """Of every operator, against NumPy. `form` is "dygraph", "program", or "old" for a program of the old IR."""
    made = _in_dygraph if form == "dygraph" else _in_program
    is_old = form == "old"
    n, rank = hvd.size(), hvd.rank()
    everyone, weights = inputs(ROWS, 3), inputs(ROWS * n, 3, seed=1)
    mine, first = everyone[rank], weights[:, :ROWS]

    result, gradient = made(hvd.allreduce_sum, mine, first[rank], is_old)
    close(result, everyone.sum(0))
    close(gradient, first.sum(0))
    result, gradient = made(lambda x: hvd.broadcast(x, root=1, ring_id=1), mine, first[rank], is_old)
    close(result, everyone[1])
    close(gradient, first.sum(0) * (rank == 1))
    result, gradient = made(hvd.allgather, mine, weights[rank], is_old)
    close(result, everyone.reshape(-1, 3))
    close(gradient, weights.sum(0)[rank * ROWS : (rank + 1) * ROWS])
    ends = np.cumsum([each + 1 for each in range(n)])
    result, gradient = made(hvd.allgather, mine[: rank + 1], weights[rank][: ends[-1]], is_old)
    close(result, np.concatenate([everyone[each, : each + 1] for each in range(n)]))
    close(gradient, weights.sum(0)[ends[rank] - rank - 1 : ends[rank]])
    part = ROWS // n
    result, gradient = made(hvd.reducescatter, mine, first[rank][:part], is_old)
    close(result, everyone.sum(0)[rank * part : (rank + 1) * part])
    close(gradient, first[:, :part].reshape(-1, 3))
    for operator in (hvd.allreduce_max, hvd.allreduce_min, hvd.allreduce_prod):
        error = raised(lambda operator=operator: made(operator, mine, first[rank], is_old))
        assert isinstance(error, (NotSupportedError, OSError, RuntimeError)), error
        assert "no gradient" in str(error), error


def gradients_as_horovods() -> None:
    """The functions of `ciranda.paddle.ops` that operators have hidden: the mean where operators have the sum."""
    n, rank = hvd.size(), hvd.rank()
    for function, factor in (("allgather", 1 / n), ("broadcast", 1 / n), ("reducescatter", n)):
        gradients = []
        for module in (hvd, ops):
            tensor = paddle.full([n, 2], rank + 1.0)
            tensor.stop_gradient = False
            arguments = {"broadcast": (0,)}.get(function, ())
            more = {"op": hvd.Sum} if module is ops and function == "reducescatter" else {}
            (getattr(module, function)(tensor, *arguments, **more) * (rank + 2.0)).sum().backward()
            gradients.append(tensor.grad.numpy())
        close(gradients[1], gradients[0] * factor)


def element_types(is_old: bool) -> None:
    """Every type that Paddle's programs have, and every reduction, through one program."""
    names = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    n, rank = hvd.size(), hvd.rank()
    operators = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
    fetch, feed, wanted = [], {}, []
    with static(is_old) as (main, _):
        for name in names:
            given = [np.arange(1, 6) % 4 + each for each in range(n)]
            data = paddle.static.data(name, [5], name)
            dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
            mine = given[rank].astype(dtype)
            feed[name] = mine.view(np.uint16) if name == "bfloat16" else mine
            for operator, expected in operators.items():
                fetch.append(getattr(hvd, f"allreduce_{operator}")(data))
                wanted.append((dtype, expected(np.array(given), axis=0)))
            fetch.append(hvd.allgather(data))
            wanted.append((dtype, np.concatenate(given)))
    for found, (dtype, expected) in zip(run(main, feed, fetch), wanted, strict=True):
        array = np.asarray(found)
        close(array.view(dtype) if dtype is ml_dtypes.bfloat16 else array, expected)


def in_two_halves(is_old: bool, n_tensors: int = 50) -> None:
    """Starts in an order of each rank's own, and one sync that has all of them: names match what belongs together."""
    n, rank = hvd.size(), hvd.rank()
    order = list(range(n_tensors))
    random.Random(rank).shuffle(order)
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [3], "float32")
        started: dict[int, Any] = {}
        for index in order:
            value = paddle.scale(data, float(index + 1))
            (started[index],) = hvd.allreduce_start([value], index % 4, f"halves.{index}", hvd.Average)
        synced = hvd.sync_comm([started[index] for index in order], [f"halves.{index}" for index in range(n_tensors)])
        fetch = [paddle.scale(value, 1.0) for value in synced]
    with running(main) as exe:
        for step in range(3):
            found = exe.run(main, feed={"x": np.full(3, rank + step, np.float32)}, fetch_list=fetch)
            mean = np.mean([each + step for each in range(n)])
            for index, value in zip(order, found, strict=True):
                close(value, np.full(3, mean * (index + 1)))
    wait_until(lambda: _plugin.live_calls() == 0)


def in_two_halves_by_one_thread(is_old: bool) -> None:
    """The same where Paddle's executor runs all operators on one thread."""
    name = "FLAGS_new_executor_serial_run"
    paddle.set_flags({name: True})
    try:
        in_two_halves(is_old, 100)
    finally:
        paddle.set_flags({name: False})


def rings_in_other_orders(is_old: bool, n_runs: int = 5) -> None:
    """One rank starts and syncs ring 0 before ring 1, another after it: each sync has the starts of both."""
    n, rank = hvd.size(), hvd.rank()
    rings = [0, 1] if rank % 2 == 0 else [1, 0]
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [3], "float32")
        started = {
            ring: hvd.allreduce_start([paddle.scale(data, ring + 1.0)], ring, f"ring.{ring}")[0] for ring in rings
        }
        values = list(started.values())
        for ring in rings:
            values = hvd.sync_comm(values, [f"ring.{ring}"], ring)
        fetch = [paddle.scale(value, 1.0) for value in values]
    with running(main) as exe:
        for step in range(n_runs):
            found = exe.run(main, feed={"x": np.full(3, rank + step, np.float32)}, fetch_list=fetch)
            for ring, value in zip(rings, found, strict=True):
                close(value, np.full(3, (ring + 1) * sum(each + step for each in range(n))))


def many_in_any_order(is_old: bool, n_runs: int) -> None:
    """Every run of 100 collectives, in an order of each rank's own, has the right results."""
    n, rank, n_tensors = hvd.size(), hvd.rank(), 100
    order = list(range(n_tensors))
    random.Random(7 + rank).shuffle(order)
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [3], "float32")
        started = {
            index: hvd.allreduce_start([paddle.scale(data, index + 1.0)], index % 4, f"many.{index}")[0]
            for index in order
        }
        names = [f"many.{index}" for index in range(n_tensors)]
        synced = dict(zip(order, hvd.sync_comm([started[index] for index in order], names), strict=True))
        whole = paddle.stack([paddle.scale(synced[index], 1.0) for index in range(n_tensors)])
    with running(main) as exe:
        for step in range(n_runs):
            (found,) = exe.run(main, feed={"x": np.full(3, rank + step, np.float32)}, fetch_list=[whole])
            total = sum(each + step for each in range(n))
            assert np.array_equal(found, np.outer(np.arange(1, n_tensors + 1), np.full(3, total))), (step, found)
    wait_until(lambda: _plugin.live_calls() == 0)


def in_two_halves_in_dygraph() -> None:
    tensor = paddle.to_tensor(np.full(3, hvd.rank(), np.float32))
    (started,) = hvd.allreduce_start([tensor], name="dygraph")
    (synced,) = hvd.sync_comm([started])
    close(synced.numpy(), np.full(3, sum(range(hvd.size()))))


def bad_input(is_old: bool) -> None:
    """What is wrong is refused, by the call that writes the program or by exe.run(), and the world goes on."""
    rank = hvd.rank()
    tensor = paddle.ones([2])
    for ring in (-1, 64, True, "0"):
        assert isinstance(raised(lambda ring=ring: hvd.allreduce_sum(tensor, ring_id=ring)), InvalidArgumentError)
    assert isinstance(raised(lambda: hvd.broadcast(tensor, root=-1)), InvalidArgumentError)
    assert isinstance(raised(lambda: hvd.broadcast(tensor, root=9)), InvalidArgumentError)
    assert isinstance(raised(lambda: hvd.allreduce_sum(np.ones(2))), InvalidArgumentError)
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [None], "float32")
        result = hvd.allreduce_sum(data, name="rows")
        assert programs.kind_of(programs.collectives_of(main)[0]) == "allreduce_sum"
    error = raised(lambda: run(main, {"x": np.ones(2 + rank, np.float32)}, [result]))
    said = f"{type(error).__name__}: {error}"
    assert all(part in said for part in ("Mismatch", "rows", "[2]", "[3]")), said
    with hvd_errors_expected(MismatchError):
        run(main, {"x": np.ones(2 + rank, np.float32)}, [result])
    close(run(main, {"x": np.ones(2, np.float32)}, [result])[0], [hvd.size()] * 2)
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [2], "float32")
        result = hvd.sync_comm([paddle.scale(data, 1.0)], ["never started"])
    assert "never started" in str(raised(lambda: run(main, {"x": np.ones(2, np.float32)}, result)))


class hvd_errors_expected:  # noqa: N801 (reads as a function)
    """The program's error, as one of ours."""

    def __init__(self, kind: type[BaseException], *parts: str) -> None:
        self.kind, self.parts = kind, parts

    def __enter__(self) -> None:
        self.errors = hvd.ciranda_errors()
        self.errors.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        try:
            self.errors.__exit__(kind, error, trace)
        except self.kind as ours:
            error = ours
        return isinstance(error, self.kind) and all(part in str(error) for part in self.parts)


def refused_in_pir() -> None:
    """Without a library programs of PIR before Paddle 3.3 are told why, and what else there is."""
    with static(False):
        error = raised(lambda: hvd.allreduce_sum(paddle.static.data("x", [2], "float32")))
    assert isinstance(error, NotSupportedError), error
    assert all(part in str(error) for part in ("before Paddle 3.3", "CIRANDA_PADDLE_OPS=py_func", "old IR")), error


def worlds_that_follow(is_old: bool) -> None:
    """A program outlives a world: outside one it fails, and finds the next."""
    with static(is_old) as (main, _):
        result = hvd.allreduce_sum(paddle.static.data("x", [2], "float32"))
    feed = {"x": np.ones(2, np.float32)}
    n = hvd.size()
    close(run(main, feed, [result])[0], [n] * 2)
    hvd.barrier()
    hvd.shutdown()
    assert "init()" in str(raised(lambda: run(main, feed, [result])))
    hvd.init()
    close(run(main, feed, [result])[0], [n] * 2)


def waits_for(victim: int, is_old: bool) -> list[str]:
    """Return what two runs say of a rank that is killed between start and sync."""
    alone = f"only.{hvd.rank()}"
    with static(is_old) as (main, _):
        data = paddle.static.data("x", [2], "float32")
        started = hvd.allreduce_start([paddle.scale(data, 2.0)], name="doomed")
        started += hvd.allreduce_start([paddle.scale(data, 3.0)], 1, alone)
        (result, _) = hvd.sync_comm(started, ["doomed", alone])
    feed = {"x": np.ones(2, np.float32)}
    hvd.barrier()
    if hvd.rank() == victim:
        threading.Timer(SECONDS_TO_LIVE, os.kill, (os.getpid(), signal.SIGKILL)).start()
    texts = [str(raised(lambda: run(main, feed, [result])))]
    texts.append(str(raised(lambda: run(main, feed, [result]))))
    wait_until(lambda: _plugin.live_calls() == 0)
    return texts
