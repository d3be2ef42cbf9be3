"""What ranks run in the tests of training with Flax: models of linen and NNX, on all ranks as in one process."""

from __future__ import annotations

import inspect
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, serialization
from flax.training.train_state import TrainState

import ciranda.jax as hvd


def close(found: Any, wanted: Any) -> None:
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, wanted)


def _batches(n_steps: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n_steps, 12, 6)).astype(np.float32)
    return x, rng.integers(0, 3, size=(n_steps, 12))


def _part() -> slice:
    rows = 12 // hvd.size()
    return slice(hvd.rank() * rows, (hvd.rank() + 1) * rows)


class _Net(nn.Module):
    @nn.compact
    def __call__(self, x: Any, is_training: bool) -> Any:
        x = nn.relu(nn.Dense(16)(x))
        x = nn.Dropout(0.0, deterministic=not is_training)(nn.LayerNorm()(x))
        return nn.Dense(3)(x)


@jax.jit
def _linen_step(state: Any, x: Any, y: Any) -> Any:
    def loss_of(params: Any) -> Any:
        logits = state.apply_fn({"params": params}, x, True, rngs={"dropout": jax.random.key(0)})
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def linen() -> None:
    """A TrainState, which is written to bytes half way and read again."""
    net, (xs, ys), mine = _Net(), _batches(10), _part()
    params = [net.init(jax.random.key(seed), xs[0], False)["params"] for seed in (0, 7 + hvd.rank())]
    alone = TrainState.create(apply_fn=net.apply, params=params[0], tx=optax.adamw(1e-2))
    ours = TrainState.create(apply_fn=net.apply, params=params[hvd.rank() != 0], tx=hvd.distributed(optax.adamw(1e-2)))
    ours = hvd.broadcast_parameters(ours)
    for index, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if index == 5:
            empty = TrainState.create(apply_fn=net.apply, params=params[1], tx=ours.tx)
            ours = serialization.from_bytes(empty, serialization.to_bytes(ours))
        ours, loss = _linen_step(ours, x[mine], y[mine])
        alone, wanted = _linen_step(alone, x, y)
        close(hvd.allreduce(loss), wanted)
    close(ours.params, alone.params)
    assert int(ours.step) == 10
    hvd.check_consistency(ours.params)


class _Model(nnx.Module):
    def __init__(self, seed: int) -> None:
        rngs = nnx.Rngs(seed)
        self.inner = nnx.Linear(6, 16, rngs=rngs)
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.outer = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.outer(self.norm(nnx.relu(self.inner(x))))


@nnx.jit
def _nnx_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    def loss_of(model: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    if "model" in inspect.signature(optimizer.update).parameters:
        optimizer.update(model, gradients)
    else:  # as it was before Flax 0.11
        optimizer.update(gradients)
    return loss


def modules() -> None:
    """Of NNX, with its own jit, gradients and optimizer, which change the model where it is."""
    (xs, ys), mine = _batches(10), _part()
    alone, ours = _Model(0), _Model(0 if hvd.rank() == 0 else 7 + hvd.rank())
    nnx.update(ours, hvd.broadcast_parameters(nnx.state(ours)))
    optimizer = nnx.Optimizer(ours, hvd.distributed(optax.adam(1e-2)), wrt=nnx.Param)
    optimizer_alone = nnx.Optimizer(alone, optax.adam(1e-2), wrt=nnx.Param)
    for x, y in zip(xs, ys, strict=True):
        loss = _nnx_step(ours, optimizer, x[mine], y[mine])
        close(hvd.allreduce(loss), _nnx_step(alone, optimizer_alone, x, y))
    close(*(jax.tree_util.tree_leaves(nnx.state(model)) for model in (ours, alone)))
    hvd.check_consistency(nnx.state(ours))


def rematerialized_layers() -> None:
    """`nn.remat` and `nn.scan` over layers that themselves communicate: a norm over the batch of all ranks."""

    def net(is_on_ranks: bool) -> Any:
        class Block(nn.Module):
            @nn.compact
            def __call__(self, x: Any, _: Any) -> Any:
                x = nn.Dense(6)(x)
                mean = x.mean(0)
                return jnp.tanh(x - (hvd.allreduce(mean, name="mean") if is_on_ranks else mean)), None

        layers = nn.scan(nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return layers()

    (xs, _), mine = _batches(1), _part()
    params = net(False).init(jax.random.key(0), xs[0], None)

    def gradients_of(is_on_ranks: bool) -> Any:
        return jax.jit(jax.value_and_grad(lambda params, x: (net(is_on_ranks).apply(params, x, None)[0] ** 2).mean()))

    found = hvd.grouped_allreduce(gradients_of(True)(params, xs[0][mine]))
    close(found, gradients_of(False)(params, xs[0]))
