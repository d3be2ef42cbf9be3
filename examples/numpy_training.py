"""Trains with several processes, and proves the result, in NumPy alone: two half-moons, a network of two layers.

    ciranda run -np 2 python examples/numpy_training.py

Every rank computes gradients on its share of each global batch, and Ciranda averages them. At the end rank 0 repeats
the training alone over the same global batches, and compares every parameter. The exit code is 1 if the ranks have
different parameters, if they differ from those of one process by more than rounding, or if too few points are told
apart.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator

import numpy as np

import ciranda as hvd

N_POINTS = 1000
BATCH = 60  # of all ranks together
EPOCHS = 25
RATE = 0.5
#: The largest difference of a parameter from one process: another order of adding float64, over all steps.
ROUNDING = 1e-9

Arrays = list[np.ndarray]


def half_moons(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) on two arcs that reach into each other, with noise, in random order; and which arc it is."""
    random = np.random.default_rng(seed)
    arc = random.integers(0, 2, N_POINTS)
    angle = np.pi * random.random(N_POINTS)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    points = np.where(arc[:, None] == 0, upper, lower) + random.normal(0, 0.1, (N_POINTS, 2))
    return points, arc.astype(np.float64)


def first_parameters(seed: int) -> Arrays:
    random = np.random.default_rng(seed)
    return [random.normal(0, 1, (2, 32)), np.zeros(32), random.normal(0, 0.2, 32), np.zeros(1)]


def outputs(parameters: Arrays, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer, and the probability of the lower arc."""
    inner, inner_bias, outer, outer_bias = parameters
    hidden = np.tanh(points @ inner + inner_bias)
    return hidden, 1 / (1 + np.exp(-(hidden @ outer + outer_bias)))


def gradients(parameters: Arrays, points: np.ndarray, arcs: np.ndarray) -> Arrays:
    """Of the mean cross-entropy over these points."""
    hidden, probability = outputs(parameters, points)
    of_output = (probability - arcs) / len(points)
    of_hidden = np.outer(of_output, parameters[2]) * (1 - hidden**2)
    return [points.T @ of_hidden, of_hidden.sum(axis=0), hidden.T @ of_output, of_output.sum(keepdims=True)]


def batches(points: np.ndarray, arcs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All global batches of all epochs, each epoch in an order of its own, which is the same on every rank."""
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(points))
        for start in range(0, len(points) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield points[chosen], arcs[chosen]


def train(points: np.ndarray, arcs: np.ndarray, of_batch: Callable[[Arrays, np.ndarray, np.ndarray], Arrays]) -> Arrays:
    """Train; `of_batch` computes the gradients of a global batch."""
    parameters = first_parameters(seed=1)
    for batch, labels in batches(points, arcs):
        for parameter, gradient in zip(parameters, of_batch(parameters, batch, labels), strict=True):
            np.subtract(parameter, RATE * gradient, out=parameter)
    return parameters


def averaged(parameters: Arrays, points: np.ndarray, arcs: np.ndarray) -> Arrays:
    """The gradients of a global batch, of which each rank computes an equal share."""
    mine = slice(hvd.rank(), None, hvd.size())
    return hvd.grouped_allreduce(gradients(parameters, points[mine], arcs[mine]), op=hvd.Average, name="gradients")


def main() -> int:
    hvd.init()
    if BATCH % hvd.size():
        raise SystemExit(f"numpy_training: {BATCH} points cannot be divided among {hvd.size()} ranks")
    points, arcs = half_moons(seed=0)
    parameters = train(points, arcs, averaged)

    digest = hashlib.sha256(b"".join(each.tobytes() for each in parameters)).hexdigest()
    digests = hvd.allgather_object(digest)
    if hvd.rank() != 0:
        return 0
    alone = train(points, arcs, gradients)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(parameters, alone, strict=True))
    correct = float(np.mean((outputs(parameters, points)[1] > 0.5) == arcs))
    print(f"{hvd.size()} ranks, {len(set(digests))} different set(s) of parameters (sha256 {digest[:16]}...)")
    print(f"largest difference from one process: {difference:.1e} (bound {ROUNDING:.0e})")
    print(f"told apart: {correct:.1%} of {len(points)} points")
    return 0 if len(set(digests)) == 1 and difference <= ROUNDING and correct > 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
