"""The Module API, as users of Horovod write it: fit() with callbacks, a checkpoint by rank 0, and a score."""

import tempfile

import mxnet as mx
import numpy as np

import horovod.mxnet as hvd

BATCH = 8

hvd.init()
mx.random.seed(hvd.rank())
np.random.seed(hvd.rank())  # which shuffles
rng = np.random.RandomState(7)
x = rng.normal(size=(96, 6)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.float32)
mine = slice(hvd.rank(), None, hvd.size())
train = mx.io.NDArrayIter(x[mine], y[mine], BATCH, shuffle=True)

net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=12, name="fc1"), name="bn")
net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=2, name="fc2")
model = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=mx.cpu(hvd.local_rank()))
opt = mx.optimizer.create("adam", learning_rate=0.01 * hvd.size(), rescale_grad=1.0 / BATCH)
opt = hvd.DistributedOptimizer(opt)
model.bind(data_shapes=train.provide_data, label_shapes=train.provide_label)
model.init_params(mx.init.Xavier())
arg_params, aux_params = model.get_params()
if arg_params:
    hvd.broadcast_parameters(arg_params, root_rank=0)
if aux_params:
    hvd.broadcast_parameters(aux_params, root_rank=0)
model.set_params(arg_params=arg_params, aux_params=aux_params)
with tempfile.TemporaryDirectory() as folder:
    is_first = hvd.rank() == 0
    model.fit(
        train,
        kvstore=None,
        optimizer=opt,
        num_epoch=6,
        eval_metric="acc",
        batch_end_callback=mx.callback.Speedometer(BATCH * hvd.size(), 4) if is_first else None,
        epoch_end_callback=mx.callback.do_checkpoint(f"{folder}/model") if is_first else None,
    )
    if is_first:
        mx.model.load_checkpoint(f"{folder}/model", 6)
accuracy = model.score(train, "acc")[0][1]
weights = {name: array.asnumpy() for name, array in model.get_params()[0].items()}
for theirs in hvd.allgather_object(weights):
    for name, value in theirs.items():
        np.testing.assert_array_equal(value, weights[name])
assert accuracy > 0.8, accuracy
if hvd.rank() == 0:
    print(f"module script: accuracy {accuracy:.2f} on {hvd.size()} ranks")
hvd.shutdown()
