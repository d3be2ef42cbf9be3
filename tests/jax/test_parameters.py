"""Ranks that begin with different parameters are told so, outside jit and inside."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytest.importorskip("optax")

pytestmark = pytest.mark.multiprocess

TOLD = "distributed(): the ranks do not begin with the same parameters; call params = broadcast_parameters("


def _train(is_compiled: bool, passes: int, has_broadcast: bool) -> tuple[int, str]:
    """Return the number of steps, and the error."""
    import jax
    import jax.numpy as jnp
    import optax

    import ciranda.jax as hvd

    params = {"alike": jnp.ones(3), "shifted": jnp.arange(4.0) + hvd.rank()}
    if has_broadcast:
        params = hvd.broadcast_parameters(params)
    optimizer = hvd.distributed(optax.adam(0.1), backward_passes_per_step=passes)
    state = optimizer.init(params)

    def step(params, state):  # type: ignore[no-untyped-def]
        gradients = jax.grad(lambda each: sum(jnp.sum(one**2) for one in each.values()))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    step = jax.jit(step) if is_compiled else step
    for number in range(3):
        try:
            with hvd.ciranda_errors():
                params, state = jax.block_until_ready(step(params, state))
        except hvd.errors.MismatchError as error:
            return number, str(error)
    return 3, ""


@pytest.mark.parametrize("is_compiled", [True, False], ids=["jit", "eager"])
def test_a_forgotten_broadcast(three: Ranks, is_compiled: bool) -> None:
    for n_steps, problem in three.run(_train, is_compiled, 1, False):
        assert n_steps == 0
        assert TOLD in problem
        assert """tensor '['shifted']' (float32 [4] here) has other bits on rank""" in problem
    assert three.run(_train, is_compiled, 1, True) == [(3, "")] * 3


def test_passes_that_accumulate(three: Ranks) -> None:
    for n_steps, problem in three.run(_train, True, 2, False):
        assert n_steps < 2
        assert TOLD in problem
    assert three.run(_train, True, 2, True) == [(3, "")] * 3


def _join_first() -> int:
    """Rank 1 has no batches in the first epoch: it meets the others, who have compared, in the second."""
    import jax
    import jax.numpy as jnp
    import optax

    import ciranda.jax as hvd

    params = {"weight": jnp.ones(3)}
    optimizer = hvd.distributed(optax.sgd(0.1))

    @jax.jit
    def step(params, state):  # type: ignore[no-untyped-def]
        updates, state = optimizer.update(params, state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(2 if hvd.rank() != 1 else 0):
        params, state = jax.block_until_ready(step(params, state))
    hvd.join()
    for _ in range(2):
        params, state = jax.block_until_ready(step(params, state))
    return 2


def test_a_rank_that_joins_before_its_first_step(three: Ranks) -> None:
    assert three.run(_join_first) == [2] * 3
