"""Handwritten digits with PaddlePaddle on several processes, by programs; and the proof that they train as one does.

    ciranda run -np 2 python examples/paddle/digits.py --way gradients
    ciranda run -np 2 python examples/paddle/digits.py --way parameters
    ciranda run -np 2 python examples/paddle/digits.py --way classes

gradients: GradAllReduce averages the gradients of a convolutional network in every step. parameters: LocalSGD averages
its parameters instead. classes: each process has some of the last layer's classes, which GradAllReduce leaves alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import ciranda.paddle as hvd

import paddle  # isort: skip (the oldest version needs it so)
from ciranda.paddle.nn import ShardedLinear, sharded_softmax_cross_entropy

BATCH = 48
STEPS = 50


def load() -> tuple[Any, Any]:
    """The digits of scikit-learn, where it is there; else images that are as easy to tell apart."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        generator = np.random.default_rng(0)
        labels = generator.integers(0, 10, 1797)
        images = generator.normal(size=(10, 64))[labels] + generator.normal(size=(1797, 64))
        return images.reshape(-1, 1, 8, 8).astype("float32"), labels
    digits = load_digits()
    return (digits.images[:, None] / 16).astype("float32"), digits.target


def network() -> tuple[Any, Any]:
    """Images in, a loss out: all but the last layer, and the last."""
    body = paddle.nn.Sequential(
        paddle.nn.Conv2D(1, 8, 3, padding=1), paddle.nn.ReLU(), paddle.nn.MaxPool2D(2), paddle.nn.Flatten(),
        paddle.nn.Linear(128, 32), paddle.nn.Tanh(),
    )  # fmt: skip
    return body, paddle.nn.Linear(32, 10)


def write(way: str) -> tuple[Any, Any, Any, list[Any], Any]:
    """A program that trains, as for one process, but for a layer whose classes are divided; and its startup program."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
        images = paddle.static.data("images", [None, 1, 8, 8], "float32")
        labels = paddle.static.data("labels", [None], "int64")
        body, dense = network()
        features = body(images)
        head = ShardedLinear(32, 10, bias=True) if way == "classes" else None
        if head is not None:
            loss = sharded_softmax_cross_entropy(features, labels, head)
        else:
            loss = paddle.nn.functional.cross_entropy(dense(features), labels)
        paddle.optimizer.Momentum(0.05, 0.9 if way != "parameters" else 0.0).minimize(loss, startup)
    shared = [*body.parameters(), *(dense.parameters() if head is None else [])]
    return main, startup, loss, shared, head


def values(count: int) -> list[Any]:
    """The same first values everywhere, so that trainings can be compared."""
    generator = np.random.default_rng(1)
    shapes = [(8, 1, 3, 3), (8,), (128, 32), (32,), (32, 10), (10,)]
    return [generator.normal(size=shape, scale=0.2).astype("float32") for shape in shapes][:count]


def train(written: Any, images: Any, labels: Any, rows: Any) -> tuple[list[Any], list[float]]:
    """Run the program on the rows of each step; the parameters, a divided layer's in one piece, and the losses."""
    main, startup, loss, shared, head = written
    executor = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        executor.run(startup)
        scope = paddle.static.global_scope()
        tensors = [scope.find_var(each.name).get_tensor() for each in shared]
        for tensor, value in zip(tensors, values(len(tensors)), strict=True):
            tensor.set(value, paddle.CPUPlace())
        if head is not None:
            weight, bias = values(6)[4:]
            head.load_dense(weight.T, bias)
        losses = []
        for step in rows:
            (now,) = executor.run(main, {"images": images[step], "labels": labels[step]}, [loss])
            losses.append(float(now))
        found = [np.array(tensor) for tensor in tensors]
        if head is not None:
            weight, bias = head.to_dense()
            found += [weight.T, bias]
        return found, losses


def main() -> None:
    """Train on all processes, and each by itself, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=["gradients", "parameters", "classes"], default="gradients")
    way = parser.parse_args().way
    hvd.init()
    paddle.enable_static()
    images, labels = load()
    rows = np.resize(np.random.default_rng(2).permutation(len(images)), (STEPS, BATCH))
    mine = rows[:, hvd.rank() :: hvd.size()]

    alone, losses = train(write("gradients" if way != "parameters" else way), images, labels, rows)
    together = write(way)
    transpiler = hvd.LocalSGD(k_steps=1) if way == "parameters" else hvd.GradAllReduce()
    transpiler.transpile(together[1], together[0])
    found, _ = train(together, images, labels, mine)

    worst = max(float(np.abs(one - other).max()) for one, other in zip(found, alone, strict=True))
    assert worst < 1e-5, worst
    if hvd.rank() == 0:
        print(f"loss {losses[0]:.2f}, in the end {losses[-1]:.2f}")
        print(f"{way}: {hvd.size()} processes train as one does, to {worst:.0e}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
