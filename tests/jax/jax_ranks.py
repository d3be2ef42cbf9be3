"""What ranks run in the tests of ciranda.jax: compiled programs, and how they fail."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ranks import wait_until

import ciranda.jax as hvd
from ciranda._ops import ALLREDUCE
from ciranda.errors import InvalidArgumentError, MismatchError, NotSupportedError
from ciranda.jax import _plugin, arrays
from ciranda.jax._plugin import live_calls
from ciranda.jax._primitive import Call, _attributes


def close(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def raised(attempt: Any) -> BaseException:
    try:
        result = jax.block_until_ready(attempt())
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def _inputs() -> list[np.ndarray[Any, Any]]:
    shape = (2 * hvd.size(), 4)
    return [np.random.default_rng(rank).normal(size=shape).astype(np.float32) for rank in range(hvd.size())]


# --- arrays


def wide_arrays_while_x64_is_off() -> None:
    """Arrays that were made while it was on keep their dtype, as in what jax does with them."""
    rank, n = hvd.rank(), hvd.size()
    everyone = [np.arange(n, dtype=np.int64) + 2**40 * (each + 1) for each in range(n)]
    with arrays._enable_x64(True):
        mine, real = jnp.asarray(everyone[rank]), jnp.arange(3.0) / 4 + rank
    assert (mine.dtype, real.dtype) == (np.int64, np.float64)
    rows, row = [1] * n, slice(rank, rank + 1)
    results = {
        "sum": (hvd.allreduce(mine, op=hvd.Sum), np.sum(everyone, axis=0)),
        "average": (hvd.allreduce(real), np.arange(3.0) / 4 + (n - 1) / 2),
        "gather": (hvd.allgather(mine), np.concatenate(everyone)),
        "broadcast": (hvd.broadcast(mine, 1), everyone[1]),
        "parameters": (hvd.broadcast_parameters({"a": mine}, 1)["a"], everyone[1]),
        "scatter": (hvd.reducescatter(mine, op=hvd.Sum), np.sum(everyone, axis=0)[row]),
        "exchange": (hvd.alltoall(mine, splits=rows)[0], np.array([each[rank] for each in everyone])),
        "compressed": (hvd.allreduce(real, compression=hvd.Compression.fp16), np.arange(3.0) / 4 + (n - 1) / 2),
        "copy": (hvd.elastic._copy_of(mine), everyone[rank]),
        "room": (hvd.elastic._room_for(hvd.elastic._description_of(mine)), np.zeros(n, np.int64)),
    }
    for name, (found, wanted) in results.items():
        assert found.dtype == wanted.dtype, (name, found.dtype)
        np.testing.assert_array_equal(np.asarray(found), wanted, name)


def nothing_is_transferred_implicitly() -> None:
    """Under a guard that refuses it; values are given as they are, so that only the calls could transfer some."""
    n = hvd.size()
    x = jnp.arange(4.0 * n).reshape(2 * n, 2) + hvd.rank()
    functions: dict[str, Any] = {
        "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum),
        "scaled maximum": lambda x: hvd.allreduce(x, op=hvd.Max, prescale_factor=2.0),
        "allgather": hvd.allgather,
        "broadcast": lambda x: hvd.broadcast(x, 1),
        "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=0.5),
        "alltoall": hvd.alltoall,
        "alltoall with splits": lambda x: hvd.alltoall(x, splits=[2] * n)[0],
    }

    def derivatives(function: Any) -> Any:
        """Return the result, its tangent, the gradient, and the gradient of that."""
        result, transposed = jax.vjp(function, x)
        (gradient,), twice = jax.vjp(transposed, result)
        return result, jax.jvp(function, (x,), (x,))[1], gradient, twice((gradient,))

    for name, function in functions.items():
        wanted = derivatives(function)
        with jax.transfer_guard("disallow"):
            found = derivatives(function)
        for mine, each in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(wanted), strict=True):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(each), name)
    with jax.transfer_guard("disallow"):
        _, counts = hvd.alltoall(x, splits=[2] * n)
    assert counts.tolist() == [2] * n


# --- compiled programs


def every_collective_in_jit() -> None:
    everyone, rank, n = _inputs(), hvd.rank(), hvd.size()
    mine, total = jnp.asarray(everyone[rank]), np.sum(_inputs(), axis=0)

    @jax.jit
    def program(x: Any) -> Any:
        hvd.barrier()
        return {
            "sum": hvd.allreduce(x, op=hvd.Sum),
            "average": hvd.allreduce(x, prescale_factor=0.5, postscale_factor=3.0),
            "max": hvd.allreduce(x, op=hvd.Max),
            "fp16": hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16),
            "group": hvd.grouped_allreduce({"a": x, "b": [x[0], 2 * x]}, op=hvd.Sum),
            "gather": hvd.allgather(x),
            "broadcast": hvd.broadcast(x, root_rank=1),
            "scatter": hvd.reducescatter(x, op=hvd.Sum),
            "uneven": hvd.reducescatter(x[: n + 1], op=hvd.Sum),
            "alltoall": hvd.alltoall(x),
            "tree": hvd.grouped_alltoall({"a": x, "b": [2 * x]}),
            "nothing": hvd.allreduce(x[:0]),
            "scalar": hvd.allreduce(x[0, 0], op=hvd.Sum),
        }

    for each_way in (program, program, program.__wrapped__):  # which is outside jit
        found = each_way(mine)
        close(found["sum"], total)
        close(found["average"], 1.5 * total / n)
        close(found["max"], np.max(everyone, axis=0))
        close(found["fp16"], total, 2e-2)
        close(found["group"]["a"], total)
        close(found["group"]["b"][0], total[0])
        close(found["group"]["b"][1], 2 * total)
        close(found["gather"], np.concatenate(everyone))
        close(found["broadcast"], everyone[1])
        rows = 2
        close(found["scatter"], total[rank * rows : (rank + 1) * rows])
        close(found["uneven"], np.array_split(total[: n + 1], n)[rank])
        close(found["alltoall"], np.concatenate([each[rank * rows : (rank + 1) * rows] for each in everyone]))
        (first, first_counts), (second, second_counts) = found["tree"]["a"], found["tree"]["b"][0]
        close(first, found["alltoall"])
        close(second, 2 * first)
        assert first_counts.tolist() == second_counts.tolist() == [rows] * n
        assert found["nothing"].shape == (0, 4)
        close(found["scalar"], total[0, 0])


def values_known_while_a_program_is_made() -> None:
    """Those that a function has from outside: their call is the program's, made whenever that runs."""
    n = hvd.size()
    total = sum(range(1, n + 1))
    array, numbers = jnp.full(700, hvd.rank() + 1.0), np.full(5, hvd.rank() + 1.0, np.float32)
    programs = {
        "array": (lambda: hvd.allreduce(array, op=hvd.Sum, name="known.a"), np.full(700, total)),
        "numpy": (lambda: hvd.allreduce(numbers, op=hvd.Sum, name="known.b"), np.full(5, total)),
        "number": (lambda: hvd.allreduce(1.5, op=hvd.Sum, name="known.c"), 1.5 * n),
        "rows": (lambda: hvd.allgather(numbers, name="known.d"), np.repeat(np.arange(1.0, n + 1), 5)),
        "root": (lambda: hvd.broadcast(array, n - 1, name="known.e"), np.full(700, n)),
        "gradient": (
            lambda: jax.grad(lambda x: (x * hvd.allreduce(array, op=hvd.Sum, name="known.f")).sum())(jnp.ones(700)),
            np.full(700, total),
        ),
        "scan": (
            lambda: jax.lax.scan(
                lambda a, _: (a + hvd.allreduce(numbers, op=hvd.Sum, name="known.g").sum(), None), 0.0, None, length=4
            )[0],
            20.0 * total,
        ),
    }
    for program, wanted in programs.values():
        for each in (jax.jit(program), program):
            for _ in range(3):
                close(each(), wanted)
    if hvd.rank() == 0:  # a program that is made is not run
        jax.eval_shape(lambda: hvd.allreduce(array, op=hvd.Sum, name="known.h"))


def gradients_in_jit() -> None:
    everyone, rank, n = _inputs(), hvd.rank(), hvd.size()
    mine = jnp.asarray(everyone[rank])
    weights = [np.random.default_rng([7, each]).normal(size=(2 * n * n, 4)).astype(np.float32) for each in range(n)]

    def of(function: Any) -> Any:
        def loss(x: Any) -> Any:
            result = function(x)
            return (result * jnp.asarray(weights[rank])[: result.shape[0]]).sum()

        found, again = jax.grad(loss)(mine), jax.jit(jax.grad(loss))(mine)
        close(again, found)
        return again

    own = np.stack(weights)[:, : 2 * n]
    close(of(lambda x: hvd.allreduce(x, op=hvd.Sum)), own.sum(0))
    close(of(lambda x: hvd.allreduce(x, postscale_factor=2.0)), 2 * own.mean(0))
    is_largest = everyone[rank] == np.max(everyone, axis=0)
    close(of(lambda x: hvd.allreduce(x, op=hvd.Max)), own.sum(0) * is_largest)
    close(of(lambda x: hvd.allreduce(x, op=hvd.Max, prescale_factor=-2.0)).shape, (2 * n, 4))
    close(of(hvd.allgather), np.mean(weights, axis=0)[2 * n * rank : 2 * n * (rank + 1)])
    close(of(lambda x: hvd.broadcast(x, 1)), own.mean(0) * (rank == 1))
    shares = np.concatenate([own[each, :2] for each in range(n)])
    close(of(lambda x: hvd.reducescatter(x, op=hvd.Sum)), n * shares)
    close(of(hvd.alltoall), np.concatenate([own[to, 2 * rank : 2 * rank + 2] for to in range(n)]))
    second = jax.jit(jax.grad(lambda x: jax.grad(lambda y: (hvd.allreduce(y, op=hvd.Sum) ** 3).sum())(x).sum()))
    assert second(mine).shape == mine.shape
    error = raised(lambda: jax.grad(lambda x: hvd.allreduce(x, op=hvd.Product).sum())(mine))
    assert isinstance(error, NotSupportedError), error


_NOT_ELEMENTWISE: dict[str, Any] = {
    "allgather": hvd.allgather,
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "allreduce with op=Adasum": lambda x: hvd.allreduce(x, op=hvd.Adasum),
    "reduce": lambda x: hvd.reduce(x, 0),
    "gather": lambda x: hvd.gather(x, 0),
    "scatter": lambda x: hvd.scatter(x, 0),
}


def transformations() -> None:
    everyone, n = _inputs(), hvd.size()
    mine, total = jnp.asarray(everyone[hvd.rank()]), np.sum(everyone, axis=0)
    for in_axis in (0, 1):
        mapped = jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Sum), in_axes=in_axis, out_axes=in_axis)
        close(mapped(mine), total)
        close(jax.jit(mapped)(mine), total)
    text = jax.jit(jax.vmap(hvd.allreduce)).lower(mine).as_text()
    assert text.count("ciranda_jax_collective") == 1, text
    batch = jnp.stack([mine, mine])
    for name, function in _NOT_ELEMENTWISE.items():
        for mapped in (jax.vmap(function), jax.jit(jax.vmap(function))):
            error = raised(lambda mapped=mapped: mapped(batch))
            assert isinstance(error, NotSupportedError), (name, error)
            assert str(error).startswith((f"{name} has no vmap", f"{name} of a traced value")), (name, error)
    error = raised(lambda: jax.vmap(hvd.allreduce_async)(mine))
    assert f"float32 of shape {list(mine.shape[1:])} is traced" in str(error), error

    def step(carry: Any, _: Any) -> Any:
        return hvd.allreduce(carry, op=hvd.Sum, name="in a loop") / n, None

    close(jax.jit(lambda x: jax.lax.scan(step, x, length=10)[0])(mine), total / n)
    close(jax.lax.fori_loop(0, 10, lambda _, x: step(x, None)[0], mine), total / n)
    halves = jax.jit(jax.checkpoint(lambda x: jnp.sin(hvd.allreduce(x, op=hvd.Sum)).sum()))
    close(jax.grad(halves)(mine), n * np.cos(total), 1e-5)
    both = jax.jit(lambda x: jax.lax.cond(x[0, 0] > 1e9, lambda y: y, lambda y: hvd.allreduce(y, op=hvd.Sum), x))
    close(both(mine), total)


def unused_results_are_communicated() -> None:
    """A call is made even if nobody wants its result: on one rank here it is wanted."""
    rank = hvd.rank()

    @jax.jit
    def program(x: Any) -> Any:
        total = hvd.allreduce(x, op=hvd.Sum, name="wanted by one")
        return total if rank == 0 else x

    result = program(jnp.ones(4))
    assert result.tolist() == ([hvd.size()] if rank == 0 else [1]) * 4


def donated_arguments_stay_in_place() -> None:
    program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum), donate_argnums=0)
    x = jnp.ones((256, 256)) * (hvd.rank() + 1)
    x.block_until_ready()
    where = x.unsafe_buffer_pointer()
    result = program(x).block_until_ready()
    assert result.unsafe_buffer_pointer() == where
    assert x.is_deleted()
    assert float(result[3, 3]) == sum(range(1, hvd.size() + 1))
    kept = jnp.ones(1000)
    both = jax.jit(lambda x: (hvd.allreduce(x, op=hvd.Sum), x * 2))(kept)
    assert (float(both[0][0]), float(both[1][0]), float(kept[0])) == (hvd.size(), 2.0, 1.0)


def in_random_order(n_calls: int, width: int, seed: int) -> None:
    """The results stand in that order, too: XLA goes by it. Two calls are few steps, which it likes to do in turn."""
    for n in (2, n_calls):
        order = list(range(n))
        random.Random(seed + hvd.rank()).shuffle(order)
        if n == 2:
            order = [1, 0] if hvd.rank() == 1 else [0, 1]

        @jax.jit
        def program(xs: Any, order: Any = order) -> Any:
            return [hvd.allreduce(2 * xs[each], op=hvd.Sum, name=f"random.{each}") for each in order]

        xs = [jnp.full((width,), index + hvd.rank(), jnp.float32) for index in range(n)]
        for _ in range(3):
            for index, found in zip(order, program(xs), strict=True):
                assert float(found[0]) == 2 * sum(index + rank for rank in range(hvd.size()))


def names_of_unnamed_calls() -> None:
    """They do not depend on how often a rank has traced, or on other programs."""
    if hvd.rank() == 1:
        jax.make_jaxpr(hvd.allreduce)(jnp.ones(3))
        jax.jit(hvd.allreduce).lower(jnp.ones(5))

    def step(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(2 * x, op=hvd.Sum)

    text = jax.jit(step).lower(jnp.ones(3)).as_text()
    assert "jit_step.allreduce.0" in text, text
    assert "jit_step.allreduce.1" in text, text
    assert jax.jit(step)(jnp.ones(3)).tolist() == [3.0 * hvd.size()] * 3


def names_that_stand_twice() -> None:
    """In one program each call gets a name of its own."""

    def twice(x: Any) -> Any:
        return hvd.allreduce(hvd.allreduce(x, op=hvd.Sum, name="twice"), op=hvd.Sum, name="twice")

    text = jax.jit(twice).lower(jnp.ones(3)).as_text()
    assert '"twice"' in text, text
    assert '"twice#1"' in text, text
    assert jax.jit(twice)(jnp.ones(3)).tolist() == [9.0] * 3

    inner = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="inner"))

    @jax.jit
    def uses(x: Any) -> Any:
        steps = jax.lax.scan(lambda carry, _: (inner(carry), None), x, None, length=3, unroll=2)[0]
        return inner(x), inner(2 * x), steps

    assert [each.tolist() for each in uses(jnp.ones(3))] == [[3.0] * 3, [6.0] * 3, [27.0] * 3]
    _calls_that_were_given_one_name()


def _calls_that_were_given_one_name() -> None:
    """By whoever writes the custom calls himself; they must not meet."""
    call = Call(ALLREDUCE, name="one name")
    made = jax.ffi.ffi_call(_plugin.COLLECTIVE, jax.ShapeDtypeStruct((3,), jnp.float32), has_side_effect=True)
    both = jax.jit(lambda x: [made(x * i, **_attributes(call, "one name", "one")) for i in range(2)])
    error = raised(lambda: both(jnp.ones(3, jnp.float32)))
    assert isinstance(error, jax.errors.JaxRuntimeError), error
    assert "two calls in one program" in str(error), error
    hvd.barrier()


def programs_that_are_alike() -> None:
    """They have the same names, and on jaxlib 0.5.3 their runs have the same numbers."""
    for _ in range(3):
        program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="alike"))
        assert program(jnp.ones(3)).tolist() == [1.0 * hvd.size()] * 3  # once: then the next has the number of this run


def program_on_disk(folder: str, is_later: bool) -> list[str]:
    """Return whether JAX has found a program in its persistent cache. Later it is compiled after another."""
    jax.config.update("jax_compilation_cache_dir", f"{folder}/{hvd.rank()}")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if is_later:
        jax.jit(lambda x: hvd.allreduce(3 * x, op=hvd.Sum))(jnp.ones(9))
    x = jnp.arange(8.0).reshape(4, 2)
    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))

    @jax.jit
    def step(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x, name="rows"), hvd.alltoall(x)

    total, rows, swapped = step(x)
    found = [event for event in events if event in ("cache_hits", "cache_misses")]
    close(total, 2 * x)
    close(rows, np.tile(x, (2, 1)))
    close(swapped, np.tile(x[2 * hvd.rank() : 2 * hvd.rank() + 2], (2, 1)))
    return found


# --- errors


def errors_in_jit_and_outside() -> None:
    odd = hvd.rank() == hvd.size() - 1
    x = jnp.ones(3 + odd)
    error = raised(lambda: jax.jit(lambda x: hvd.allreduce(x, name="shape"))(x))
    assert isinstance(error, jax.errors.JaxRuntimeError), error
    inside = str(error)
    assert all(part in inside for part in ("FAILED_PRECONDITION", "'shape'", "[3]", "[4]", "rank 2")), inside
    outside = raised(lambda: hvd.allreduce(x, name="shape"))
    assert isinstance(outside, MismatchError), outside
    assert "'shape'" in str(outside)

    @hvd.ciranda_errors()
    def program() -> Any:
        return jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x, name="shape"))(x))

    assert isinstance(raised(program), MismatchError)
    hvd.barrier()
    wrong = {
        "finite": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=float("nan")),
        "root_rank 9": lambda x: hvd.broadcast(x, root_rank=9),
        "scalar": lambda x: hvd.allgather(x[0]),
        "outside jit": lambda x: hvd.reduce(x, root_rank=0),
        "_async": hvd.allreduce_async,
    }
    for part, function in wrong.items():
        for attempt in (jax.jit(function), function):
            if part in ("outside jit", "_async") and attempt is function:
                continue
            error = raised(lambda attempt=attempt: attempt(jnp.ones(3)))
            assert part in str(error), (part, error)
            assert isinstance(error, (InvalidArgumentError, jax.errors.JaxRuntimeError)), error
    error = raised(lambda: jax.jit(lambda x: hvd.alltoall(x, splits=[3, 0, 0]))(jnp.ones(3)))
    assert "outside jit" in str(error), error
    error = raised(lambda: hvd.allreduce(jax.random.key(0)))
    assert "key" in str(error), error
    error = raised(lambda: jax.jit(hvd.allgather)(jnp.ones((1 + hvd.rank(), 2))))
    assert "rows" in str(error) or "rank" in str(error), error
    hvd.barrier()
    wait_until(lambda: live_calls() == 0)  # on a thread of the engine's, a moment after JAX has its result


def process_sets_by_number() -> None:
    some = hvd.add_process_set([0, 2])
    average = jax.jit(lambda x: hvd.allreduce(x, process_set=some, name="of some"))
    if hvd.rank() in (0, 2):
        assert average(jnp.full(3, hvd.rank(), jnp.float32)).tolist() == [1.0] * 3
    hvd.barrier()
    hvd.remove_process_set(some)
    if hvd.rank() in (0, 2):
        error = raised(lambda: average(jnp.ones(3)))
        assert isinstance(error, jax.errors.JaxRuntimeError), error
        assert "process set" in str(error), error
    hvd.barrier()


def programs_outlive_worlds() -> None:
    import os

    average = jax.jit(lambda x: hvd.allreduce(x, name="average"))
    gather = jax.jit(lambda x: hvd.allgather(x, name="gather"))
    x = jnp.full((2, 3), hvd.rank() + 1, jnp.float32)
    n = hvd.size()
    close(average(x), np.full((2, 3), (n + 1) / 2))
    gather(x)
    hvd.shutdown()
    error = raised(lambda: average(x))
    assert isinstance(error, jax.errors.JaxRuntimeError), error
    assert "init()" in str(error), error
    away = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("CIRANDA_")}
    hvd.init()
    close(average(x), x)
    error = raised(lambda: gather(x))
    assert f"had {n} ranks, and it has 1 now" in str(error), error
    jax.clear_caches()
    close(gather(x), x)
    hvd.shutdown()
    os.environ.update(away)
    hvd.init()
    jax.clear_caches()
    close(average(x), np.full((2, 3), (n + 1) / 2))
