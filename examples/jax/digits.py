"""Train a small network on handwritten digits with JAX and optax, on as many processes as there are.

    ciranda run -np 2 python examples/jax/digits.py

Needs scikit-learn for the images. Every rank trains on its part of each batch; at the end it is checked that all ranks
have the same parameters, and what they recognize is printed.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import ciranda.jax as hvd


def initial(key, sizes):
    """Return weights and biases for layers of these sizes."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(key, (n_in, n_out)) * (2 / n_in) ** 0.5, "b": jnp.zeros(n_out)}
        for key, n_in, n_out in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def scores(params, images):
    """Return a score for each digit."""
    for layer in params[:-1]:
        images = jax.nn.relu(images @ layer["w"] + layer["b"])
    return images @ params[-1]["w"] + params[-1]["b"]


def loss_of(params, images, digits):
    """Return the mean cross entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, images), digits).mean()


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=96, help="images of all ranks together")
    options = parser.parse_args()

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    images, digits = load_digits(return_X_y=True)
    images, digits = (images / 16.0).astype(np.float32), digits.astype(np.int32)
    n_train = 1500

    params = hvd.broadcast_parameters(initial(jax.random.key(rank), [64, 64, 10]), root_rank=0)
    optimizer = hvd.distributed(optax.adam(2e-3))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, images, digits):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, digits)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(loss)

    share = options.batch // size
    for epoch in range(options.epochs):
        order = np.random.default_rng(epoch).permutation(n_train)  # the same on all ranks
        for begin in range(0, n_train - options.batch + 1, options.batch):
            mine = order[begin + rank * share : begin + (rank + 1) * share]
            params, state, loss = step(params, state, images[mine], digits[mine])
        if rank == 0:
            print(f"epoch {epoch}: loss {float(loss):.3f}", flush=True)

    hvd.check_consistency(params)
    found = np.asarray(scores(params, images[n_train:])).argmax(axis=1)
    if rank == 0:
        print(f"the parameters of all {size} ranks are the same bits")
        print(f"{(found == digits[n_train:]).mean():.1%} of the digits that it has not seen are recognized")
    hvd.shutdown()


if __name__ == "__main__":
    main()
