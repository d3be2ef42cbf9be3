"""What ranks run in the tests of what goes on beside a program, and of many steps."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ranks import wait_until

import ciranda
import ciranda.jax as hvd
from ciranda.jax._plugin import live_calls


def raised(attempt: Any) -> BaseException:
    try:
        result = jax.block_until_ready(attempt())
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def long_code_behind_an_allreduce() -> bool:
    """Return whether NumPy's allreduces are done while rank 0's program computes behind an allreduce."""
    is_long = hvd.rank() == 0
    has_begun, are_done = threading.Event(), threading.Event()
    waited = []

    def rest(x: Any) -> Any:
        has_begun.set()
        if is_long:
            waited.append(are_done.wait(60))
        return x

    @jax.jit
    def program(x: Any) -> Any:
        y = hvd.allreduce(x, op=hvd.Sum, name="before")
        return jax.pure_callback(rest, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

    array = np.ones(100)
    ciranda.allreduce(array, name="other")
    running = threading.Thread(target=lambda: program(jnp.ones(8)).block_until_ready())
    running.start()
    assert has_begun.wait(60)
    for _ in range(10):
        ciranda.allreduce(array, name="other")
    are_done.set()
    running.join()
    return waited == ([True] if is_long else [])


def callback_that_communicates() -> None:
    def more(x: Any) -> Any:
        return ciranda.allreduce(np.asarray(x), op=ciranda.Sum, name="in a callback")

    @jax.jit
    def program(x: Any) -> Any:
        y = hvd.allreduce(x, op=hvd.Sum, name="before it")
        return jax.pure_callback(more, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

    for _ in range(3):
        assert program(jnp.ones(8))[0] == hvd.size() ** 2


def programs_in_another_order() -> str:
    """Return what becomes of two programs that each rank runs in another order, of which each waits for the other."""
    f = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="f"))
    g = jax.jit(lambda x: hvd.allreduce(2 * x, op=hvd.Sum, name="g"))
    x = jnp.ones(300)
    for program in (f, g):
        program(x).block_until_ready()
    hvd.barrier()
    first, second = (f, g) if hvd.rank() == 0 else (g, f)
    message = str(raised(lambda: first(x)))
    assert "has waited" in str(raised(lambda: second(x)))  # it has failed for the other rank, and so for this one
    hvd.barrier()
    assert (float(f(x)[0]), float(g(x)[0])) == (hvd.size(), 2.0 * hvd.size())
    return message


def waits_for(victim: int, folder: Path) -> dict[str, str]:
    """Return with what calls of each way end that wait for a rank which never comes: all at once."""
    xs = [jnp.ones(300)] * 20
    optimizer = hvd.distributed(optax.sgd(1.0), name="gradients")

    def more(x: Any) -> Any:
        return ciranda.allreduce(np.asarray(x), name="in a callback")

    def looped(x: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, y: hvd.allreduce(y, name="in a loop"), x)

    ways: dict[str, Any] = {
        "program": jax.jit(lambda xs: [hvd.allreduce(x, name=f"step.{index}") for index, x in enumerate(xs)]),
        "loop": jax.jit(lambda xs: looped(xs[0])),
        "gradient": jax.jit(jax.grad(lambda xs: (hvd.allreduce(xs[0], name="of a gradient") ** 2).sum())),
        "callback": jax.jit(lambda xs: jax.pure_callback(more, jax.ShapeDtypeStruct((300,), jnp.float32), xs[0])),
        "optimizer": jax.jit(lambda xs: optimizer.update(xs, optimizer.init(xs))[0]),
        "outside": lambda xs: hvd.allreduce(xs[0], name="outside"),
        "outside, grouped": lambda xs: hvd.grouped_allgather(xs, name="grouped"),
    }
    for way in ways.values():
        jax.block_until_ready(way(xs))
    hvd.barrier()
    (folder / str(hvd.rank())).touch()
    ended: dict[str, str] = {}
    if hvd.rank() == victim:
        return ended

    def wait(name: str, way: Any) -> None:
        ended[name] = str(raised(lambda: way(xs)))

    threads = [threading.Thread(target=wait, args=each) for each in ways.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(raised(lambda: hvd.allreduce(jnp.ones(3))), ciranda.errors.RanksLostError)
    hvd.shutdown()
    wait_until(lambda: live_calls() == 0)
    return ended


def many_steps(n_steps: int) -> int:
    """Return by how many KiB the process has grown."""

    @jax.jit
    def step(x: Any) -> Any:
        a, b = hvd.grouped_allreduce([x, x * 2], name="group")
        return hvd.allreduce(a + b, name="sum") / 3, hvd.allgather(x[:1], name="gather")

    x = jnp.ones(100)
    for index in range(n_steps):
        if index == n_steps // 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        x, _ = step(x)
    x.block_until_ready()
    assert x.tolist() == [1.0] * 100
    hvd.barrier()
    wait_until(lambda: live_calls() == 0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
