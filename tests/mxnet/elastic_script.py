"""Training with Gluon and a DistributedTrainer; its rank 0 is killed once."""

import elastic_jobs
import mxnet as mx
import numpy as np

import ciranda.mxnet as hvd

hvd.init()
mx.random.seed(1)
x = np.random.default_rng(1).normal(size=(elastic_jobs.N_STEPS * elastic_jobs.BATCH, 4)).astype(np.float32)
y = x.sum(axis=1, keepdims=True)
net = mx.gluon.nn.Sequential()
net.add(mx.gluon.nn.Dense(8, in_units=4, activation="tanh"), mx.gluon.nn.Dense(1, in_units=8))
net.initialize(mx.init.Xavier())
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while state.step == elastic_jobs.WAITING_STEP and 1 < hvd.size() < 3:
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size())
        with mx.autograd.record():
            loss = mx.nd.square(net(mx.nd.array(x[mine])) - mx.nd.array(y[mine])).sum()
        loss.backward()
        trainer.step(len(mine))
        everybodys = hvd.allgather(mx.nd.array(mine, dtype="int32"), name="rows").asnumpy()
        state.rows = state.rows + sorted(int(row) for row in everybodys)
        state.step += 1
        state.commit()


state = hvd.elastic.MXNetState(net.collect_params(), trainer, step=0, rows=[])
train(state)
weights = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
elastic_jobs.report(hvd.rank(), hvd.size(), weights, state.rows)
