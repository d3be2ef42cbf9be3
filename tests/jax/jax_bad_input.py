"""What ranks run in the tests of wrong calls: each is refused, by class and by what is wrong; the process goes on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ciranda.jax as hvd
from ciranda.errors import InvalidArgumentError, MismatchError, NotSupportedError, ScalarError

Attempt = Callable[[Any], Any]


def error_of(attempt: Callable[[], Any]) -> BaseException:
    try:
        result = jax.block_until_ready(attempt())
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def refused(attempt: Callable[[], Any], part: str, *kinds: type[BaseException]) -> None:
    error = error_of(attempt)
    assert isinstance(error, kinds), (part, type(error), error)
    assert part in str(error), (part, error)


def works() -> None:
    total = hvd.allreduce(jnp.ones(3), op=hvd.Sum, name="works")
    assert total.tolist() == [float(hvd.size())] * 3
    program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="works in a program"))
    assert program(jnp.ones(3)).tolist() == [float(hvd.size())] * 3


def attempts() -> dict[str, Attempt]:
    """Calls that are wrong by themselves, by what the message must say."""
    n = hvd.size()
    return {
        "this one has 0": lambda x: hvd.allreduce(x, name=""),
        "finite": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=float("nan")),
        "postscale_factor": lambda x: hvd.reducescatter(x, op=hvd.Sum, postscale_factor=float("inf")),
        "number 77": lambda x: hvd.allreduce(x, op=77),
        f"root_rank {n} is not a rank": lambda x: hvd.broadcast(x, root_rank=n),
        "root_rank -1": lambda x: hvd.broadcast(x, root_rank=-1),
        "scalar": lambda x: hvd.allgather(x[0]),
        "a scalar": lambda x: hvd.alltoall(x[0]),
        "no sum of bool": lambda x: hvd.allreduce(x > 0, op=hvd.Sum),
        f"cut into {n} equal parts": lambda x: hvd.alltoall(jnp.concatenate([x, x[:1]])),
        "float8_e4m3fn": lambda x: hvd.allreduce(x.astype(jnp.float8_e4m3fn)),
        "dtype key": lambda x: hvd.broadcast(jax.random.key(0), 0),
        "not both": lambda x: hvd.allreduce(x, average=True, op=hvd.Sum),
    }


def wrong_calls() -> None:
    x = jnp.ones(2 * hvd.size())
    for part, attempt in attempts().items():
        kinds = ScalarError if "scalar" in part else InvalidArgumentError
        refused(lambda attempt=attempt: attempt(x), part, kinds)
        refused(lambda attempt=attempt: jax.jit(attempt)(x), part, kinds, jax.errors.JaxRuntimeError)
    refused(lambda: jax.jit(lambda x: hvd.allreduce(x, prescale_factor=x[0]))(x), "traced", NotSupportedError)
    refused(lambda: jax.jit(lambda x: hvd.allreduce(x, name=5))(x), "a name must be a string", InvalidArgumentError)
    refused(lambda: hvd.allreduce(x, name=5), "", TypeError)
    for name in (None, "n" * 2000):
        assert hvd.allreduce(x, name=name).tolist() == x.tolist()
    assert hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.0).tolist() == (0 * x).tolist()
    works()


def wrong_splits() -> None:
    n, rank = hvd.size(), hvd.rank()
    x = jnp.arange(4.0)
    wrong = {
        "must add up": [5] + [0] * (n - 1),
        "-1": [5, -1] + [0] * (n - 2),
        f"these are {n + 1}": [4] + [0] * n,
        "got float32 of shape": np.array([4.0] + [0.0] * (n - 1), np.float32),
        "of shape [1, ": [[4] + [0] * (n - 1)],
        "of shape [0]": [],
    }
    for part, splits in wrong.items():
        refused(lambda splits=splits: hvd.alltoall(x, splits=splits), part, InvalidArgumentError)
    refused(lambda: jax.jit(lambda x: hvd.alltoall(x, splits=[4] + [0] * (n - 1)))(x), "outside jit", NotSupportedError)
    for dtype in (np.int32, np.int64, np.uint8):
        received, counts = hvd.alltoall(x, splits=np.array([4] + [0] * (n - 1), dtype))
        assert counts.tolist() == [4 if rank == 0 else 0] * n
        assert counts.dtype == jax.dtypes.canonicalize_dtype(dtype)
        assert received.tolist() == x.tolist() * (n if rank == 0 else 0)
    works()


def lists_that_differ() -> None:
    """Of variables, between ranks: the ranks and what differs are named."""
    n = hvd.size()
    is_odd = hvd.rank() == n - 1
    optimizer = hvd.distributed(optax.sgd(1.0))
    tree = {name: jnp.ones(3) for name in ("a", "b", *(["c"] if is_odd else []))}
    update = lambda tree: optimizer.update(tree, optimizer.init(tree), tree)[0]  # noqa: E731
    text = f"or does not exist, on rank {n - 1} than on ranks"
    refused(lambda: update(tree), text, MismatchError)
    refused(lambda: jax.jit(update)(tree), text, jax.errors.JaxRuntimeError)
    params = {"a": jnp.ones(3 + is_odd)}
    refused(lambda: hvd.broadcast_parameters(params), "broadcast_parameters['a']", MismatchError)
    for factor in (0.0, float("nan")):
        refused(
            lambda factor=factor: hvd.distributed(optax.sgd(1.0), gradient_predivide_factor=factor),
            f"not {factor}",
            InvalidArgumentError,
        )
    works()


def ranks_that_differ() -> None:
    """In each way; the last rank makes another call by the same name. All are told who differs, and go on."""
    n, is_odd = hvd.size(), hvd.rank() == hvd.size() - 1
    x = jnp.ones((n, 2))
    ways: dict[str, tuple[Attempt, Attempt]] = {
        "dtype": (hvd.allreduce, lambda x, **name: hvd.allreduce(x.astype(jnp.int32), **name)),
        "shape": (hvd.allreduce, lambda x, **name: hvd.allreduce(x[:1], **name)),
        "columns": (hvd.allgather, lambda x, **name: hvd.allgather(x[:, :1], **name)),
        "op": (functools.partial(hvd.allreduce, op=hvd.Sum), functools.partial(hvd.allreduce, op=hvd.Max)),
        "root": (functools.partial(hvd.broadcast, root_rank=0), functools.partial(hvd.broadcast, root_rank=1)),
        "prescale": (hvd.allreduce, functools.partial(hvd.allreduce, prescale_factor=0.5)),
        "postscale": (hvd.reducescatter, functools.partial(hvd.reducescatter, postscale_factor=0.5)),
        "kind": (hvd.allreduce, functools.partial(hvd.broadcast, root_rank=0)),
        "number": (lambda x, name: hvd.grouped_allreduce([x, x], name=name), hvd.allreduce),
    }
    for what, (usual, odd) in ways.items():
        call = functools.partial(odd if is_odd else usual, name=f"other {what}")
        for attempt in (call, jax.jit(call)):
            error = error_of(lambda attempt=attempt: attempt(x))
            assert isinstance(error, (MismatchError, jax.errors.JaxRuntimeError)), (what, error)
            assert f"'other {what}'" in str(error), (what, error)
            assert f"rank {n - 1}" in str(error), (what, error)
    works()


def outside_a_world() -> None:
    """Before init() and after shutdown()."""
    x = jnp.ones(4)
    hvd.barrier()
    hvd.shutdown()
    for function in (hvd.allreduce, hvd.allgather, lambda x: hvd.broadcast(x, 0), hvd.alltoall, hvd.reducescatter):
        refused(lambda function=function: function(x), "init()", InvalidArgumentError)
        kinds = (InvalidArgumentError, jax.errors.JaxRuntimeError)
        refused(lambda function=function: jax.jit(function)(x), "init()", *kinds)
    hvd.init()
    jax.clear_caches()
    works()


def removed_set() -> None:
    """A program names a process set that has been removed."""
    some = hvd.add_process_set([0, hvd.size() - 1])
    programs = [
        jax.jit(lambda x: hvd.allreduce(x, process_set=some, name="of some")),
        jax.jit(lambda x: hvd.allgather(x, process_set=some, name="gathered of some")),
    ]
    is_member = hvd.rank() in (0, hvd.size() - 1)
    for program in programs:
        if is_member:
            jax.block_until_ready(program(jnp.ones(3)))
        else:
            refused(lambda program=program: program(jnp.ones(3)), "not in", jax.errors.JaxRuntimeError)
    hvd.barrier()
    hvd.remove_process_set(some)
    for program in programs:
        if is_member:
            refused(lambda program=program: program(jnp.ones(3)), "process set", jax.errors.JaxRuntimeError)
    works()
