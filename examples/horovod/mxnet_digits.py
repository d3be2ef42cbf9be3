"""A plain Horovod script: a convolutional network on handwritten digits, in Gluon.

horovodrun -np 2 python examples/horovod/mxnet_digits.py
"""

from __future__ import annotations

import argparse

import mxnet as mx
import numpy as np
from mxnet.gluon import nn
from sklearn.datasets import load_digits

import horovod.mxnet as hvd

BATCH = 32


def network() -> nn.HybridSequential:
    """Return a small network, whose initialization is deferred."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, activation="relu"), nn.Conv2D(32, 3, activation="relu"), nn.MaxPool2D())
    net.add(nn.Flatten(), nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    hvd.init()
    mx.random.seed(hvd.rank())
    images, labels = load_digits(return_X_y=True)
    x = (images / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    y = labels.astype(np.float32)
    train, test = slice(0, 1500), slice(1500, None)

    net = network()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": 1e-3 * hvd.size()})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(1500)[hvd.rank() :: hvd.size()]
        for begin in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[begin : begin + BATCH]
            with mx.autograd.record():
                loss = loss_of(net(mx.nd.array(x[train][batch])), mx.nd.array(y[train][batch]))
            loss.backward()
            trainer.step(BATCH)
        right = net(mx.nd.array(x[test])).argmax(axis=1) == mx.nd.array(y[test])
        accuracy = float(hvd.allreduce(right.mean(), name="accuracy").asscalar())
        if hvd.rank() == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.3f}")
    parameters = [param.data().asnumpy() for param in net.collect_params().values()]
    everyones = hvd.allgather_object(parameters)
    for theirs in everyones:
        assert all((mine == other).all() for mine, other in zip(parameters, theirs, strict=True))
    if hvd.rank() == 0:
        print(f"the parameters of all {hvd.size()} ranks are the same bits")


main()
