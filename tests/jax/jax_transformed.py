"""What ranks run in the tests of derivatives in both modes, and of functions that a program uses several times."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ciranda.jax as hvd
from ciranda.errors import NotSupportedError


def close(found: Any, wanted: Any, what: str = "", tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), tolerance, 1e-5, err_msg=what)


def total(x: Any, name: str | None = None) -> Any:
    return hvd.allreduce(x, op=hvd.Sum, name=name)


def _everyone() -> jax.Array:
    """The arrays of all ranks, stacked: no two elements at a place are equal."""
    return jnp.asarray(np.random.default_rng(3).normal(size=(hvd.size(), 2 * hvd.size(), 2)), jnp.float32)


# What a collective is in one process that has the arrays of all ranks: of them, and of the rank that asks.
_IN_ONE_PROCESS: dict[str, tuple[Any, Any]] = {
    "sum": (total, lambda all, r: all.sum(0)),
    "scaled": (lambda x: hvd.allreduce(x, prescale_factor=0.5, postscale_factor=3.0), lambda all, r: 1.5 * all.mean(0)),
    "max": (lambda x: hvd.allreduce(x, op=hvd.Max), lambda all, r: all.max(0)),
    "min": (lambda x: hvd.allreduce(x, op=hvd.Max, prescale_factor=-2.0), lambda all, r: -2 * all.min(0)),
    "allgather": (hvd.allgather, lambda all, r: jnp.concatenate(list(all))),
    "broadcast": (lambda x: hvd.broadcast(x, 1), lambda all, r: all[1]),
    "reducescatter": (lambda x: hvd.reducescatter(x, op=hvd.Sum), lambda all, r: all.sum(0)[2 * r : 2 * r + 2]),
    "alltoall": (hvd.alltoall, lambda all, r: jnp.concatenate([each[2 * r : 2 * r + 2] for each in all])),
}


def tangents() -> None:
    """Those of one process that has all arrays, with jit and without, by jvp and linearize."""
    everyone, rank = _everyone(), hvd.rank()
    moves = jnp.sin(5 * everyone)

    def of_all(all: Any) -> Any:
        return {name: theirs(jnp.sin(all), rank) ** 2 for name, (_, theirs) in _IN_ONE_PROCESS.items()}

    def of_mine(x: Any) -> Any:
        return {name: ours(jnp.sin(x)) ** 2 for name, (ours, _) in _IN_ONE_PROCESS.items()}

    def linearized(x: Any, move: Any) -> Any:
        value, push = jax.linearize(of_mine, x)
        return value, push(move)

    wanted = jax.jit(lambda all, moves: jax.jvp(of_all, (all,), (moves,)))(everyone, moves)
    for program in (jax.jit(lambda x, move: jax.jvp(of_mine, (x,), (move,))), linearized):
        for found, each in zip(program(everyone[rank], moves[rank]), wanted, strict=True):
            for name in each:
                close(found[name], each[name], name)


def second_derivatives() -> None:
    """All ranks move the same element; the loss is the sum of theirs, as a gradient has it."""
    everyone, rank, n = _everyone()[:, :2], hvd.rank(), hvd.size()

    def loss(sums: Any) -> Any:
        return (sums**3).sum() + jnp.sin(sums[0, 0] * sums[1, 1])

    whole = jax.hessian(lambda all: n * loss(all.sum(0)))(everyone)
    wanted = whole[rank].sum(axis=2)

    def mine(x: Any) -> Any:
        return loss(total(x))

    for derivative in (jax.hessian(mine), jax.jacfwd(jax.jacrev(mine)), jax.jacrev(jax.jacrev(mine))):
        for program in (derivative, jax.jit(derivative)):
            close(program(everyone[rank]), wanted, tolerance=1e-3)
    other_way = jax.jit(jax.jacrev(jax.jacfwd(mine)))(everyone[rank])  # of each rank's loss, moved everywhere, summed
    close(other_way, wanted, tolerance=1e-3)


def tangents_of_what_differs() -> None:
    """Of ranks that bring different numbers of rows, outside jit; of integers beside; of what has no derivative."""
    rank, n = hvd.rank(), hvd.size()
    rows = jnp.ones((1 + rank, 2)) * (rank + 1)
    value, moved = jax.jvp(hvd.allgather, (rows,), (2 * rows,))
    close(moved, 2 * value)
    value, push = jax.linearize(hvd.allgather, rows)
    close(push(2 * rows), 2 * value)
    splits = [2 if each == rank else 1 for each in range(n)]
    swapped = jnp.ones((n + 1, 2)) * (rank + 1)
    value, moved = jax.jvp(lambda x: hvd.alltoall(x, splits=splits)[0], (swapped,), (2 * swapped,))
    close(moved, 2 * value)
    close(jax.grad(lambda x: (hvd.alltoall(x, splits=splits)[0] ** 2).sum())(swapped), 2 * swapped)
    whole = jnp.arange(3)
    (_, sums), (moved, none) = jax.jvp(
        lambda x: hvd.grouped_allreduce([x, whole], op=hvd.Sum), (rows[:1],), (rows[:1],)
    )
    close(sums, n * whole)
    close(moved, np.full((1, 2), sum(range(1, n + 1))))
    assert none.dtype == jax.dtypes.float0
    with pytest.raises(NotSupportedError, match="op=Average, Sum, Min and Max"):
        jax.jvp(lambda x: hvd.allreduce(x, op=hvd.Product), (rows[:1],), (rows[:1],))


def functions_used_twice() -> None:
    """Each use has calls of its own, with names of their own."""
    n = hvd.size()
    x = jnp.arange(6.0).reshape(2, 3) + hvd.rank()
    sums = np.arange(6.0).reshape(2, 3) * n + n * (n - 1) / 2
    inner = jax.jit(lambda y: total(y, "inner"))
    text = jax.jit(lambda x: (inner(x), inner(2 * x), inner(inner(x)))).lower(x).as_text()
    assert all(f'"inner{suffix}"' in text for suffix in ("", "#1", "#2", "#3")), text

    def step(carry: Any, _: Any) -> Any:
        return inner(carry) / n, None

    def loop(x: Any) -> Any:
        return lax.scan(step, x, None, length=2)[0]

    @jax.custom_vjp
    def own(x: Any) -> Any:
        return inner(x)

    own.defvjp(lambda x: (inner(x), None), lambda _, gradient: (inner(gradient),))
    uses = {
        "jit": inner,
        "inlined": jax.jit(lambda x: n * loop(x), inline=True),
        "scan": lambda x: n * loop(x),
        "unrolled": lambda x: n * lax.scan(step, x, None, length=5, unroll=2)[0],
        "nested": lambda x: n * lax.scan(lambda c, _: (loop(c), None), x, None, length=2, unroll=2)[0],
        "while": lambda x: n * lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, inner(c[1]) / n), (0, x))[1],
        "cond": lambda x: lax.cond(x.sum() < 1e9, inner, lambda y: y, x),
        "checkpoint": jax.checkpoint(inner),
        "custom_vjp": own,
    }

    def twice(x: Any) -> Any:
        return {name: use(x) + use(2 * x) for name, use in uses.items()}

    def loss(x: Any) -> Any:
        uses.pop("while", None)  # of which JAX has no gradient
        return sum(each.sum() for each in twice(x).values())

    found, gradient = jax.jit(lambda x: (twice(x), jax.grad(loss)(x)))(x)
    for name, each in found.items():
        close(each, 3 * sums, name)
    close(gradient, np.full((2, 3), 3.0 * n * len(uses)))
