"""What ranks run in the tests of training with optax."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ciranda.jax as hvd
from ciranda.errors import InvalidArgumentError, MismatchError


def close(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def raised(attempt: Any) -> BaseException:
    try:
        result = jax.block_until_ready(attempt())
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def _loss(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return ((hidden @ params["w2"] - y) ** 2).mean()


def _start() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    params = {"w1": rng.normal(size=(5, 8)), "b1": np.zeros(8), "w2": rng.normal(size=(8, 2)) * 0.3}
    batches = rng.normal(size=(10, 24, 5)).astype(np.float32), rng.normal(size=(10, 24, 2)).astype(np.float32)
    return jax.tree_util.tree_map(lambda a: a.astype(np.float32), params), *batches


def training(options: dict[str, Any], tolerance: float) -> None:
    """Train on this rank's part of each batch, and on whole batches as one process would: the same comes out."""
    params, xs, ys = _start()
    rank, n = hvd.rank(), hvd.size()
    passes = options.get("backward_passes_per_step", 1)
    alone, ours = optax.adam(1e-2), hvd.distributed(optax.adam(1e-2), **options)
    mine = hvd.broadcast_parameters(params if rank == 0 else jax.tree_util.tree_map(np.zeros_like, params))
    state, state_alone = ours.init(mine), alone.init(params)

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(_loss)(params, x, y)
        updates, state = ours.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(loss)

    @jax.jit
    def step_alone(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(_loss)(params, x, y)
        updates, state = alone.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    part = 24 // n
    for x, y in zip(xs, ys, strict=True):
        for index in range(passes):
            size = part // passes
            rows = slice(rank * part + index * size, rank * part + (index + 1) * size)
            mine, state, loss = step(mine, state, x[rows], y[rows])
        params, state_alone, wanted = step_alone(params, state_alone, x, y)
        if passes == 1:
            close(loss, wanted, max(tolerance, 1e-5))
    jax.tree_util.tree_map(lambda a, b: close(a, b, tolerance), mine, params)
    hvd.check_consistency(mine)


def trainings() -> None:
    training({}, 1e-5)
    training({"gradient_predivide_factor": 2.0, "backward_passes_per_step": 2}, 1e-5)
    assert isinstance(
        raised(lambda: hvd.distributed(optax.sgd(1.0), op=hvd.Sum, gradient_predivide_factor=2.0)),
        InvalidArgumentError,
    )


def one_rank_ends_before() -> None:
    """join() lets programs under way finish, also those whose results are gone; averages divide as they are told to."""
    rank, n = hvd.rank(), hvd.size()

    @jax.jit
    def last_step(x: Any) -> Any:
        square = jnp.broadcast_to(x, (300, x.size)).T @ jnp.ones((300, 300))
        late = jax.lax.fori_loop(0, 20, lambda _, y: jnp.sin(y @ jnp.ones((300, 300))), square)
        return hvd.allreduce(x + 0 * late[0, 0], op=hvd.Sum, name="last step")

    found = last_step(jnp.ones(300))
    del found
    if rank != 0:
        close(last_step(jnp.ones(300)), np.full(300, n - 1.0))
        for divisor, wanted in (("contributors", -1.0), ("world", -(n - 1) / n)):
            optimizer = hvd.distributed(optax.sgd(1.0), divisor=divisor, name=f"while 0 has joined {divisor}")
            updates, _ = optimizer.update(jnp.ones(3), optimizer.init(jnp.ones(3)))
            close(updates, np.full(3, wanted))
    assert hvd.join() in range(n)
    assert isinstance(raised(lambda: hvd.distributed(optax.sgd(1.0), divisor="all")), InvalidArgumentError)


def trainings_with_each_option() -> None:
    training({"gradient_predivide_factor": 2.0}, 1e-5)
    training({"backward_passes_per_step": 2}, 1e-5)
    training({"compression": hvd.Compression.bf16}, 0.1)


def line_searches() -> None:
    """Steps that depend on the loss are the same on all ranks: those of one process with everyone's data."""
    params, xs, ys = _start()
    rank, part = hvd.rank(), 24 // hvd.size()
    mine = slice(rank * part, (rank + 1) * part)
    # The loss that the second looks at gets worse on rank 0, where the rate alone would be reduced.
    plateau = optax.chain(optax.sgd(0.05), optax.contrib.reduce_on_plateau(patience=1, rtol=0.02))
    for optimizer in (optax.lbfgs(), plateau):
        ours = hvd.distributed(optimizer)

        def fitted(update: Any, x: Any, y: Any, optimizer: Any = optimizer) -> Any:
            loss = functools.partial(_loss, x=x, y=y)

            @jax.jit
            def step(params: Any, state: Any) -> Any:
                value, grad = jax.value_and_grad(loss)(params)
                updates, state = update(grad, state, params, value=value, grad=grad, value_fn=loss)
                return optax.apply_updates(params, updates), state

            found, state = params, optimizer.init(params)
            for _ in range(6):
                found, state = step(found, state)
            return found

        found = fitted(ours.update, xs[0][mine], ys[0][mine])
        wanted = fitted(optax.with_extra_args_support(optimizer).update, xs[0], ys[0])
        hvd.check_consistency(found)
        jax.tree_util.tree_map(lambda a, b: close(a, b, 1e-3), found, wanted)


def parameters_and_objects() -> None:
    rank = hvd.rank()
    tree = {"a": jnp.full(3, rank), "b": [np.full(2, rank, np.float64), "own"], "key": jax.random.key(rank), "c": None}
    tree["numbers"] = [6 + rank, rank / 2, rank == 1, complex(0, rank), np.float32(rank / 4)]  # as states have them
    found = hvd.broadcast_parameters(tree, root_rank=1)
    assert found["a"].tolist() == [1, 1, 1]
    assert found["b"][0].dtype == np.float64
    assert (found["b"][0].tolist(), found["b"][1], found["c"]) == ([1.0, 1.0], "own", None)
    assert found["numbers"] == [7, 0.5, True, 1j, 0.25]
    assert list(map(type, found["numbers"])) == [int, float, bool, complex, np.float32]
    assert jax.random.key_data(found["key"]).tolist() == jax.random.key_data(jax.random.key(1)).tolist()
    assert hvd.broadcast_object({"rank": rank}, root_rank=2) == {"rank": 2}
    assert hvd.allgather_object(rank) == list(range(hvd.size()))
    error = raised(lambda: hvd.check_consistency({"x": [jnp.full(3, rank)]}))
    assert isinstance(error, MismatchError), error
    error = raised(lambda: hvd.check_consistency({"step": 3 + rank}))
    assert "['step']" in str(error), error
    error = raised(lambda: hvd.broadcast_parameters({"x": jnp.ones(2 + rank)}))
    assert "['x']" in str(error), error
