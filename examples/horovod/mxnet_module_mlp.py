"""A plain Horovod script: a perceptron on handwritten digits, by the Module API of MXNet.

horovodrun -np 2 python examples/horovod/mxnet_module_mlp.py
"""

from __future__ import annotations

import mxnet as mx
import numpy as np
from sklearn.datasets import load_digits

import horovod.mxnet as hvd

BATCH = 30


def symbol() -> mx.sym.Symbol:
    hidden = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=10), name="softmax")


def main() -> None:
    hvd.init()
    mx.random.seed(hvd.rank())
    np.random.seed(hvd.rank())  # by which the iterator shuffles
    images, labels = load_digits(return_X_y=True)
    x, y = (images / 16).astype(np.float32), labels.astype(np.float32)
    mine = slice(hvd.rank(), 1500, hvd.size())
    train = mx.io.NDArrayIter(x[mine], y[mine], BATCH, shuffle=True, last_batch_handle="discard")
    test = mx.io.NDArrayIter(x[1500:], y[1500:], BATCH)

    module = mx.mod.Module(symbol())
    module.bind(train.provide_data, train.provide_label)
    module.init_params(mx.init.Xavier())
    parameters, states = module.get_params()
    hvd.broadcast_parameters(parameters)
    hvd.broadcast_parameters(states)
    module.set_params(parameters, states)
    own = mx.optimizer.create("sgd", learning_rate=0.2, momentum=0.9, rescale_grad=1.0 / BATCH)
    module.fit(train, optimizer=hvd.DistributedOptimizer(own), kvstore=None, num_epoch=8)

    accuracy = module.score(test, "acc")[0][1]
    weights = [array.asnumpy() for _, array in sorted(module.get_params()[0].items())]
    for theirs in hvd.allgather_object(weights):
        assert all((one == other).all() for one, other in zip(weights, theirs, strict=True))
    assert accuracy > 0.8, accuracy
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.3f}, and the same bits on all {hvd.size()} ranks")


main()
