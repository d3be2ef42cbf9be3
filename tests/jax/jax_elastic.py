"""What ranks run in the tests of ciranda.jax.elastic."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ciranda.jax as hvd
from ciranda.errors import AbortedError

STEPS = 8


class Outcome(NamedTuple):
    """Of a training."""

    weights: list[float]
    losses: list[float]
    key: list[int]
    epoch: int
    n_calls: int
    n_resets: int
    n_steps: int


def train(failures: dict[int, str], failing_rank: int) -> Outcome:
    """Commit every second step; at the steps of `failures`, once each, something happens on one rank."""
    rank, n = hvd.rank(), hvd.size()
    optimizer = hvd.distributed(optax.adam(0.1))
    batches = jnp.asarray(np.random.default_rng(5).normal(size=(STEPS, 12, 4)), jnp.float32)
    sampler = hvd.elastic.ElasticSampler(range(12), seed=1)
    params = {"w": jnp.full(4, 1.0 + rank), "frozen": np.full(2, rank, np.float64)}  # the state makes the ranks alike
    state = hvd.elastic.JaxState(
        params=params,
        optimizer_state=optimizer.init({"w": params["w"]}),
        key=jax.random.key(rank),
        losses=[],
        step=0,
        sampler=sampler,
    )
    remaining, log = dict(failures), {"calls": 0, "resets": 0, "steps": 0}
    state.register_reset_callbacks([lambda: log.update(resets=log["resets"] + 1)])

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(w: Any, optimizer_state: Any, x: Any, key: Any) -> Any:
        def loss_of(w: Any) -> Any:
            return ((x @ w["w"] - 1.0) ** 2).mean() + 1e-3 * jax.random.normal(key)

        loss, gradients = jax.value_and_grad(loss_of)(w)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state, w)
        return optax.apply_updates(w, updates), optimizer_state, hvd.allreduce(loss)

    def happen(what: str | None) -> None:
        if what == "leave":
            hvd.shutdown()
        if what in ("leave", "raise"):
            raise AbortedError("this rank has had enough")
        if what == "hosts":
            state.on_hosts_updated(0.0, 2)

    @hvd.elastic.run
    def loop(state: Any, factor: float) -> Outcome:
        assert factor == 1.0
        log["calls"] += 1
        while state.step < STEPS:
            happen(remaining.pop(state.step, None) if hvd.rank() == failing_rank else None)
            mine = np.array(state.sampler.get_indices(0, 12 // n))
            w, state.optimizer_state, loss = step(
                {"w": state.params["w"]}, state.optimizer_state, batches[state.step][mine], state.key
            )
            state.params = {**state.params, **w}
            state.key = jax.random.split(state.key)[0]
            state.losses.append(loss)
            state.step += 1
            log["steps"] += 1
            if state.step % 2 == 0:
                state.sampler.set_epoch(state.sampler.epoch + 1)
                state.commit()
        assert state.params["frozen"].dtype == np.float64
        assert state.params["frozen"].tolist() == [0.0, 0.0]
        return Outcome(
            state.params["w"].tolist(),
            [float(each) for each in state.losses],
            jax.random.key_data(state.key).tolist(),
            state.sampler.epoch,
            *log.values(),
        )

    outcome: Outcome = loop(state, 1.0)
    hvd.check_consistency(state.params)
    hvd.check_consistency(state.optimizer_state)
    return outcome


def other_structures() -> None:
    """What rank 0 has is taken as it is, also where another rank has more, or other shapes."""
    rank = hvd.rank()
    state = hvd.elastic.JaxState(
        losses=[jnp.full(2 + rank, 7.0 * each) for each in range(3 + rank)], what="of rank 0" if rank == 0 else None
    )
    state.sync()
    assert [each.tolist() for each in state.losses] == [[0.0, 0.0], [7.0, 7.0], [14.0, 14.0]]
    assert state.what == "of rank 0"
    state.losses[0] = state.losses[0] + 1
    state.what = 3
    state.restore()
    assert state.losses[0].tolist() == [0.0, 0.0]
    assert state.what == "of rank 0"


def functions_stay() -> None:
    """A structure keeps its own functions, so that programs that were compiled for it still fit."""
    optimizer = optax.inject_hyperparams(optax.sgd)(0.1 + hvd.rank())
    params = {"w": jnp.ones(3) * hvd.rank()}
    wrapped = jax.tree_util.Partial(jnp.sin, params["w"])
    state = hvd.elastic.JaxState(params=params, optimizer_state=optimizer.init(params), wrapped=wrapped)
    before = jax.tree_util.tree_structure((state.optimizer_state, state.wrapped))
    state.sync()
    assert jax.tree_util.tree_structure((state.optimizer_state, state.wrapped)) == before
    assert abs(float(state.optimizer_state.hyperparams["learning_rate"]) - 0.1) < 1e-6
    assert state.wrapped().tolist() == [0.0] * 3


class _Failing:
    """A result of a step that fails while it is waited for."""

    def block_until_ready(self) -> None:
        raise AbortedError("a rank was lost")


def nothing_is_half_saved() -> None:
    """Where a step has failed, a commit leaves everything as it was saved last, the sampler too."""
    state = hvd.elastic.JaxState(weights=jnp.zeros(2), result=None, sampler=hvd.elastic.ElasticSampler(range(12)))
    state.weights, state.result = state.weights + 1, _Failing()
    state.sampler.record_batch(0, 2)
    try:
        state.save()
    except AbortedError:
        state.restore()
    assert state.weights.tolist() == [0.0, 0.0]
    assert state.result is None
    assert state.sampler.processed_num == 0
