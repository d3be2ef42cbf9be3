"""Gluon, as users of Horovod write it: an iterator, an optimizer that is made before, a device of each process."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import horovod.mxnet as hvd

BATCH = 8

hvd.init()
mx.random.seed(hvd.rank())
np.random.seed(hvd.rank())  # which shuffles
context = mx.cpu(hvd.local_rank())
rng = np.random.RandomState(42)
x = rng.normal(size=(64, 1, 12, 12)).astype(np.float32)
y = (x.mean(axis=(1, 2, 3)) > 0).astype(np.float32)
mine = slice(hvd.rank(), None, hvd.size())
train = mx.io.NDArrayIter(x[mine], y[mine], BATCH, shuffle=True)

model = gluon.nn.HybridSequential(prefix="mnist_")
with model.name_scope():
    model.add(gluon.nn.Conv2D(channels=4, kernel_size=3, activation="relu"))
    model.add(gluon.nn.MaxPool2D(pool_size=2, strides=2))
    model.add(gluon.nn.BatchNorm(), gluon.nn.Flatten(), gluon.nn.Dense(16, activation="relu"), gluon.nn.Dropout(0.1))
    model.add(gluon.nn.Dense(2))
model.hybridize()
optimizer_params = {"momentum": 0.9, "learning_rate": 0.05 * hvd.size()}
opt = mx.optimizer.create("sgd", **optimizer_params)
initializer = mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
model.initialize(initializer, ctx=context)
params = model.collect_params()
if params is not None:
    hvd.broadcast_parameters(params, root_rank=0)
trainer = hvd.DistributedTrainer(params, opt, gradient_predivide_factor=1.0)
loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
metric = mx.metric.Accuracy()

losses = []
for _ in range(4):
    train.reset()
    metric.reset()
    for batch in train:
        data = batch.data[0].as_in_context(context)
        label = batch.label[0].as_in_context(context)
        with autograd.record():
            output = model(data.astype("float32", copy=False))
            loss = loss_fn(output, label)
        loss.backward()
        trainer.step(BATCH)
        metric.update([label], [output])
        losses.append(float(loss.mean().asscalar()))
mean = hvd.allreduce(mx.nd.array([metric.get()[1]], ctx=context), name="accuracy")
assert losses[-1] < losses[0], losses
# What batch normalization has seen is each rank's own.
weights = {name: param.data().asnumpy() for name, param in params.items() if param.grad_req != "null"}
for theirs in hvd.allgather_object(weights):
    for name, value in theirs.items():
        np.testing.assert_array_equal(value, weights[name])
if hvd.rank() == 0:
    print(f"gluon script: accuracy {mean.asscalar():.2f} on {hvd.size()} ranks")
hvd.shutdown()
