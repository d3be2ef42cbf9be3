"""What ranks run in the tests of what users rarely do: each gives the right result, or says why it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import layout as layouts

import ciranda.jax as hvd
from ciranda.errors import InvalidArgumentError, NotSupportedError


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-5)


def refused(attempt: Callable[[], Any], part: str, *kinds: type[BaseException]) -> None:
    try:
        result = jax.block_until_ready(attempt())
    except kinds as error:
        message = str(error)
    else:
        raise AssertionError(f"no error, but {result!r}")
    assert part in message, (part, message)


def total(x: Any, name: str | None = None) -> Any:
    return hvd.allreduce(x, op=hvd.Sum, name=name)


def _mine() -> tuple[jax.Array, np.ndarray[Any, Any]]:
    """This rank's array, and the sum of all ranks'."""
    everyone = [np.arange(6.0, dtype=np.float32).reshape(2, 3) + rank for rank in range(hvd.size())]
    return jnp.asarray(everyone[hvd.rank()]), np.sum(everyone, axis=0)


# --- memory


def _in_columns(array: Any) -> jax.Array:
    """The array as a program leaves it that has been asked for column-major results."""
    order = (1, 0)
    one_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    if hasattr(layouts, "Format"):
        wanted = layouts.Format(layouts.Layout(major_to_minor=order), one_device)
    else:
        wanted = layouts.Layout(layouts.DeviceLocalLayout(major_to_minor=order), one_device)
    return jax.jit(lambda: jnp.asarray(array), out_shardings=wanted)()


def arrays_in_columns() -> None:
    rank, n = hvd.rank(), hvd.size()
    everyone = [np.arange(4.0 * n, dtype=np.float32).reshape(2 * n, 2) + each for each in range(n)]
    x = _in_columns(everyone[rank])
    memory = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * x.size).from_address(x.unsafe_buffer_pointer()))
    assert memory.tolist() == everyone[rank].T.ravel().tolist()
    close(total(x), sum(everyone))
    close(jax.jit(total)(x), sum(everyone))
    close(hvd.broadcast(x, 1), everyone[1])
    close(hvd.allgather(x), np.concatenate(everyone))
    close(hvd.alltoall(x), np.concatenate([each[2 * rank : 2 * rank + 2] for each in everyone]))
    close(hvd.broadcast_parameters({"x": x}, 1)["x"], everyone[1])
    hvd.check_consistency(_in_columns(everyone[0]) if rank == 0 else jnp.asarray(everyone[0]))


def arrays_without_elements() -> None:
    functions = (total, hvd.allgather, lambda x: hvd.broadcast(x, 0), hvd.reducescatter, hvd.alltoall)
    n = hvd.size()
    for shape in ((0, 3), (2 * n, 0)):
        rows = (shape[0], shape[0] * n, shape[0], shape[0] // n, shape[0])
        for function, n_rows in zip(functions, rows, strict=True):
            found = jax.jit(function)(jnp.ones(shape))
            assert found.shape == (n_rows, *shape[1:])
            assert jax.jit(jax.grad(lambda x, f=function: f(x).sum()))(jnp.ones(shape)).shape == shape


def donated_arrays_are_gone() -> None:
    program = jax.jit(total, donate_argnums=0)
    x = jnp.ones(1000)
    program(x)
    refused(lambda: program(x), "deleted", RuntimeError, ValueError)
    refused(lambda: total(x), "deleted", RuntimeError, ValueError)


# --- transformations


def loops_and_branches() -> None:
    (x, wanted), n = _mine(), hvd.size()

    def halve(carry: Any, _: Any = None) -> Any:
        return total(carry) / n, total(carry[0, 0])

    found, firsts = jax.jit(lambda x: lax.scan(halve, x, None, length=3))(x)
    close(found, wanted / n)
    close(firsts, [wanted[0, 0]] * 3)
    close(jax.grad(lambda x: lax.scan(halve, x, None, length=3)[0].sum())(x), np.ones((2, 3)))
    close(lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, halve(c[1])[0]), (0, x))[1], wanted / n)
    doubled = lax.while_loop(lambda c: total(c.sum()) < 1000, lambda c: 2 * c, jnp.ones(2))
    close(doubled, np.full(2, 2 ** np.ceil(np.log2(500 / n))))
    switch = jax.jit(lambda i, x: lax.switch(i, [total, lambda x: -total(x)], x))
    close(switch(1, x), -wanted)
    close(jax.vmap(lambda p, y: lax.cond(p, total, lambda y: y, y))(jnp.array([True, False]), x)[0], wanted[0])
    close(jax.vmap(lambda y: lax.scan(halve, y[None], None, length=2)[0])(x)[:, 0], wanted / n)
    nested = jax.vmap(lambda a, b: hvd.grouped_allreduce([a, b], op=hvd.Sum), in_axes=(0, None))(x, x[0])
    close(nested[0], wanted)
    close(nested[1], [wanted[0]] * 2)
    with jax.disable_jit():
        close(lax.scan(halve, x, None, length=3)[0], wanted / n)
    close(jax.pmap(total)(x[None])[0], wanted)
    if hasattr(jax, "shard_map"):  # of one device; older versions want check_rep=False
        mesh, rows = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",)), jax.sharding.PartitionSpec("d")
        on_mesh = jax.shard_map(total, mesh=mesh, in_specs=rows, out_specs=rows)
        close(on_mesh(x), wanted)
        close(jax.jit(jax.grad(lambda x: on_mesh(x).sum()))(x), np.full((2, 3), n))
    compiled = jax.jit(total).lower(x)
    for program in (compiled.compile(), compiled.compile()):
        close(program(x), wanted)


def derivatives() -> None:
    (x, wanted), n = _mine(), hvd.size()
    of_cube = lambda function: jax.grad(lambda y: jax.grad(lambda z: (function(z) ** 3).sum())(y).sum())  # noqa: E731
    close(of_cube(total)(x), 6 * n * n * wanted)
    even = jnp.tile(x, (n, 1))
    for function in (hvd.allgather, lambda z: hvd.broadcast(z, 0), lambda z: hvd.reducescatter(z, op=hvd.Sum)):
        once, compiled = of_cube(function)(even), jax.jit(of_cube(function))(even)
        close(once, compiled)
        assert np.isfinite(np.asarray(once)).all()
    assert jax.jacrev(total)(x).shape == (2, 3, 2, 3)
    (nothing,) = jax.vjp(total, jnp.arange(3))[1](np.zeros(3, jax.dtypes.float0))
    assert nothing.dtype == jax.dtypes.float0
    mixed = lambda y: sum(each.astype(float).sum() for each in hvd.grouped_allreduce([y, jnp.arange(3)], op=hvd.Sum))  # noqa: E731
    close(jax.grad(mixed)(x), np.full((2, 3), n))

    @jax.custom_vjp
    def own(y: Any) -> Any:
        return total(y)

    own.defvjp(lambda y: (total(y), y), lambda y, gradient: (total(gradient) * y,))
    for gradient in (jax.grad(lambda y: own(y).sum()), jax.jit(jax.grad(lambda y: own(y).sum()))):
        close(gradient(x), n * x)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        jax.jit(jax.grad(lambda y: (hvd.allreduce(y, op=hvd.Max) ** 2).sum()))(x)


# --- what has to be known


def known_while_tracing() -> None:
    x, wanted = _mine()
    n = hvd.size()
    for refuse, part in (
        (hvd.broadcast, "root_rank is traced"),
        (lambda x, i: hvd.allreduce(x, op=i), "op is traced"),
        (lambda x, i: hvd.allreduce(x, prescale_factor=i), "prescale_factor is traced"),
        (lambda x, i: hvd.alltoall(x, splits=jnp.full(n, i)), "traced splits"),
    ):
        refused(lambda refuse=refuse: jax.jit(refuse)(x, 1), part, NotSupportedError)
    for wrong, part in (
        (lambda x: hvd.broadcast(x, 1.5), "whole number, not 1.5"),
        (lambda x: hvd.allreduce(x, op="sum"), "whole number, not 'sum'"),
        (lambda x: hvd.allreduce(x, prescale_factor=None), "finite number, not None"),
        (lambda x: hvd.allreduce(x, prescale_factor=1j), "finite number, not 1j"),
        (lambda x: hvd.allreduce(x, name="\ud800"), "UTF-8"),
        (lambda x: hvd.allreduce(x.astype(jnp.uint4)), "dtype uint4"),
    ):
        refused(lambda wrong=wrong: jax.jit(wrong)(x), part, InvalidArgumentError)
    chosen = jax.jit(lambda x, root, op: hvd.allreduce(hvd.broadcast(x, root), op=op), static_argnums=(1, 2))
    close(chosen(x, 1, hvd.Sum), n * (wanted / n - (n - 1) / 2 + 1))
    leaked: list[Any] = []
    jax.jit(lambda y: leaked.append(total(y)))(x)
    refused(lambda: total(leaked[0]), "unexpected tracer", jax.errors.UnexpectedTracerError)
    close(total(x), wanted)


# --- threads


def threads_in_different_orders() -> None:
    """Each runs a program of its own, or compiles them."""
    n, rank = hvd.size(), hvd.rank()
    programs = [jax.jit(lambda x, i=i: total(x, f"thread {i}")) for i in range(4)]
    problems: list[BaseException] = []

    def run(index: int) -> None:
        try:
            for step in range(20):
                close(programs[index](jnp.full(7, index + 1.0)), np.full(7, n * (index + 1.0)))
                if step == 0:
                    close(jax.jit(lambda x, i=step: total(x, f"{index}.{i}") + i)(jnp.ones(7)), np.full(7, n + step))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=((index + rank) % 4,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]
