"""JAX's own collectives, each against NumPy in float64; run by `ciranda run --jax-native`. Prints what was checked."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.distributed.initialize()

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

try:
    from jax import shard_map
except ImportError:  # before 0.6
    from jax.experimental.shard_map import shard_map

N, RANK = jax.process_count(), jax.process_index()
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]
COMPLEX = [np.complex64, np.complex128]
Tree = Any


def mesh(devices: list[jax.Device] | None = None, shape: tuple[int, ...] | None = None) -> Mesh:
    devices = devices or jax.devices()
    shape = shape or (len(devices),)
    return Mesh(np.array(devices).reshape(shape), ("i", "j")[: len(shape)])


def values(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """The same on every rank; row r is what rank r brings."""
    small = np.random.default_rng(seed).integers(0 if np.dtype(dtype).kind in "ub" else -4, 5, (N, *shape))
    if np.dtype(dtype).kind == "c":
        return (small + 1j * np.roll(small, 1)).astype(dtype)
    return small.astype(dtype)


def spread(array: np.ndarray, over: Mesh) -> jax.Array:
    """Row r on the r-th device of the mesh."""
    spec = P(over.axis_names if len(over.axis_names) > 1 else over.axis_names[0])
    return jax.make_array_from_callback(array.shape, NamedSharding(over, spec), lambda index: array[index])


def on_each(function: Callable[..., Tree], *arrays: np.ndarray, over: Mesh | None = None) -> Tree:
    """`function` of each rank's row, in one program; this rank's result, as NumPy arrays."""
    over = over or mesh()
    spec = P(over.axis_names if len(over.axis_names) > 1 else over.axis_names[0])

    def program(*rows: jax.Array) -> Tree:
        return jax.tree_util.tree_map(lambda leaf: leaf[None], function(*(row[0] for row in rows)))

    mapped = jax.jit(shard_map(program, mesh=over, in_specs=spec, out_specs=spec))
    result = mapped(*(spread(array, over) for array in arrays))
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf.addressable_data(0))[0], result)


def equal(got: Any, wanted: Any, what: str) -> None:
    np.testing.assert_allclose(np.asarray(got, np.complex128), np.asarray(wanted, np.complex128), 1e-6, err_msg=what)


def reductions() -> None:
    for dtype in INTEGERS + FLOATS + COMPLEX:
        x = values(dtype, (3, 5))
        ops = {"psum": (lax.psum, np.sum)}
        if dtype not in COMPLEX:
            ops |= {"pmax": (lax.pmax, np.max), "pmin": (lax.pmin, np.min)}
        got = on_each(lambda row, ops=ops: {name: op(row, "i") for name, (op, _) in ops.items()}, x)
        for name, (_, reference) in ops.items():
            assert got[name].dtype == dtype
            equal(
                got[name], reference(x.astype(np.complex128 if dtype in COMPLEX else np.float64), 0), f"{name} {dtype}"
            )


def booleans() -> None:
    x = values(np.bool_, (3, 5)) & (np.arange(N) != N - 1)[:, None, None]
    sharded = spread(x, mesh())
    alike = NamedSharding(mesh(), P())
    some = jax.jit(lambda rows: rows.any(0), out_shardings=alike)(sharded)
    every = jax.jit(lambda rows: rows.all(0), out_shardings=alike)(sharded)
    equal(some.addressable_data(0), x.any(0), "any")
    equal(every.addressable_data(0), x.all(0), "all")


def products() -> None:
    for dtype in (np.int32, np.int64, np.float32, np.float64, np.complex64):
        x = values(dtype, (4,), seed=2)
        got = jax.jit(lambda rows: rows.prod(0), out_shardings=NamedSharding(mesh(), P()))(spread(x, mesh()))
        equal(got.addressable_data(0), x.prod(0), f"product {dtype}")


def half_precision() -> None:
    """XLA has bfloat16 go as float32; float16 is passed on, but jaxlib neither combines nor gathers it by MPI."""
    x = values(np.float32, (2 * N, 5))
    ring = [(rank, (rank + 1) % N) for rank in range(N)]
    for dtype in (jnp.bfloat16, np.float16):
        low = x.astype(dtype)
        equal(
            on_each(lambda row: lax.ppermute(row, "i", ring), low).astype(np.float32), x[RANK - 1], f"ppermute {dtype}"
        )
    summed, gathered, scattered = on_each(
        lambda row: (lax.psum(row, "i"), lax.all_gather(row, "i"), lax.psum_scatter(row, "i", tiled=True)),
        x.astype(jnp.bfloat16),
    )
    assert {summed.dtype, gathered.dtype, scattered.dtype} == {jnp.dtype(jnp.bfloat16)}
    equal(summed.astype(np.float32), x.astype(np.float64).sum(0), "psum bfloat16")
    equal(gathered.astype(np.float32), x, "all_gather bfloat16")
    equal(scattered.astype(np.float32), x.sum(0)[2 * RANK : 2 * RANK + 2], "psum_scatter bfloat16")
    for function in (lax.psum, lax.all_gather):
        refused("f16", lambda row, function=function: function(row, "i"), x.astype(np.float16))


def refused(word: str, function: Callable[..., Tree], x: np.ndarray) -> None:
    try:
        on_each(function, x)
    except RuntimeError as error:
        assert "Unsupported primitive type" in str(error), error
        assert word in str(error), error
    else:
        raise AssertionError(f"jaxlib's collectives by MPI take {word} now: say so in docs/guide/jax_native.md")


def gathers() -> None:
    for dtype in [np.uint8, np.int16, np.int64, *FLOATS, *COMPLEX]:
        x = values(dtype, (2, 3))
        equal(on_each(lambda row: lax.all_gather(row, "i"), x), x, f"all_gather {dtype}")
        tiled = on_each(lambda row: lax.all_gather(row, "i", axis=1, tiled=True), x)
        equal(tiled, np.concatenate(list(x), axis=1), f"tiled all_gather {dtype}")


def scatters() -> None:
    for dtype in [np.uint8, np.int32, *FLOATS, *COMPLEX]:
        x = values(dtype, (2 * N, 3))
        total = x.astype(np.complex128 if dtype in COMPLEX else np.float64).sum(0)
        got = on_each(lambda row: lax.psum_scatter(row, "i", tiled=True), x)
        equal(got, total[2 * RANK : 2 * RANK + 2], f"psum_scatter {dtype}")


def exchanges() -> None:
    for dtype in [np.uint8, np.int32, *FLOATS, *COMPLEX, np.bool_]:
        x = values(dtype, (2 * N, 3))
        got = on_each(lambda row: lax.all_to_all(row, "i", 0, 0, tiled=True), x)
        equal(got, np.concatenate([row[2 * RANK : 2 * RANK + 2] for row in x]), f"all_to_all {dtype}")
        ring = [(rank, (rank + 1) % N) for rank in range(N)]
        equal(on_each(lambda row, ring=ring: lax.ppermute(row, "i", ring), x), x[RANK - 1], f"ppermute {dtype}")
        got = on_each(lambda row: lax.ppermute(row, "i", [(0, N - 1)]), x)
        equal(got, x[0] if RANK == N - 1 else np.zeros_like(x[0]), f"ppermute from one to one {dtype}")


def other_order() -> None:
    """A mesh whose devices are not in the order of the ranks."""
    order = [1, 0, *range(2, N)][::-1]
    over = mesh([jax.devices()[rank] for rank in order])
    x = values(np.float32, (2 * N, 3))
    here = order.index(RANK)

    def all_of_them(row: jax.Array) -> Tree:
        return (
            lax.psum(row, "i"),
            lax.all_gather(row, "i"),
            lax.psum_scatter(row, "i", tiled=True),
            lax.all_to_all(row, "i", 0, 0, tiled=True),
            lax.ppermute(row, "i", [(rank, (rank + 1) % N) for rank in range(N)]),
        )

    summed, gathered, scattered, dealt, passed = on_each(all_of_them, x, over=over)
    equal(summed, x.sum(0), "psum")
    equal(gathered, x, "all_gather")
    equal(scattered, x.sum(0)[2 * here : 2 * here + 2], "psum_scatter")
    equal(dealt, np.concatenate([row[2 * here : 2 * here + 2] for row in x]), "all_to_all")
    equal(passed, x[here - 1], "ppermute")


def subgroups() -> None:
    if N % 2:
        return
    x = values(np.float64, (N, 3))
    over = mesh(shape=(2, N // 2))
    i, j = divmod(RANK, N // 2)
    table = x.reshape(2, N // 2, *x.shape[1:])

    def both(row: jax.Array) -> Tree:
        return (
            lax.psum(row, "i"), lax.psum(row, "j"), lax.psum(row, ("i", "j")), lax.all_gather(row, "i"),
            lax.pmax(row, "j"), lax.psum_scatter(row, "i", tiled=True), lax.ppermute(row, "i", [(0, 1), (1, 0)]),
        )  # fmt: skip

    for _ in range(3):
        got = on_each(both, x, over=over)
        half = table[:, j].sum(0)
        wanted = (
            half, table[i].sum(0), x.sum(0), table[:, j],
            table[i].max(0), half[N // 2 * i : N // 2 * (i + 1)], table[1 - i, j],
        )  # fmt: skip
        for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
            equal(one, other, f"subgroups {number}")
    groups = [list(range(N // 2)), list(range(N // 2, N))]
    got = on_each(lambda row: lax.all_gather(row, "i", axis_index_groups=groups), x)
    equal(got, x[groups[RANK // (N // 2)]], "axis_index_groups")


def some_only() -> None:
    """A mesh of some devices, and one of the others; all ranks begin a group then, as MPI demands."""
    if N < 4:
        return
    mine = [0, 1] if RANK < 2 else list(range(2, N))
    over = mesh([jax.devices()[rank] for rank in mine])
    sharded = jax.make_array_from_callback(
        (len(mine), 5), NamedSharding(over, P("i")), lambda index: np.full((1, 5), RANK + 1, np.float32)
    )
    add = jax.jit(shard_map(lambda rows: lax.psum(rows, "i"), mesh=over, in_specs=P("i"), out_specs=P()))
    equal(add(sharded).addressable_data(0)[0], np.full(5, sum(mine) + len(mine)), "some")


def loops() -> None:
    x = values(np.float64, (4,))

    def body(carry: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        total = lax.psum(carry, "i") / N
        return total + 1, total

    def looped(row: jax.Array) -> jax.Array:
        return lax.scan(body, lax.pmean(row, "i"), None, length=50)[0]

    got = on_each(looped, x)
    equal(got, x.mean(0) + 50, "scan")


def many() -> None:
    arrays = [values(np.float32, (3 + k % 7,), seed=k) for k in range(64)]
    got = on_each(lambda *rows: [lax.psum(row * k, "i") for k, row in enumerate(rows)], *arrays)
    for k, (one, array) in enumerate(zip(got, arrays, strict=True)):
        equal(one, array.sum(0) * k, f"number {k} of 64")
    add = jax.jit(functools.partial(shard_map, mesh=mesh(), in_specs=P("i"), out_specs=P())(lambda x: lax.psum(x, "i")))
    x = spread(np.ones((N, 8), np.float32), mesh())
    for _ in range(500):
        y = add(x)
    equal(y.addressable_data(0)[0], np.full(8, N), "the last of 500")


def empty_and_scalar() -> None:
    equal(on_each(lambda row: lax.psum(row, "i"), values(np.float32, ())), values(np.float32, ()).sum(), "scalar")
    assert on_each(lambda row: lax.psum(row, "i"), values(np.float32, (0, 3))).shape == (0, 3)


def large() -> None:
    x = values(np.float32, (N << 18,))
    for name, op in {"psum": lax.psum, "pmax": lax.pmax}.items():
        equal(on_each(lambda row, op=op: op(row, "i"), x), x.sum(0) if name == "psum" else x.max(0), f"large {name}")
    ring = [(rank, (rank + 1) % N) for rank in range(N)]
    equal(on_each(lambda row: lax.ppermute(row, "i", ring), x), x[RANK - 1], "large ppermute")


CHECKS = (
    reductions, booleans, products, half_precision, gathers, scatters, exchanges, other_order, subgroups, some_only,
    loops, many, empty_and_scalar, large,
)  # fmt: skip

for check in CHECKS:
    if sys.argv[1:] in ([], [check.__name__]):
        check()
        print("checked", check.__name__, flush=True)
