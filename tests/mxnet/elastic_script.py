"""Training with Gluon and a DistributedTrainer; its rank 0 is killed twice."""

import elastic_jobs
import mxnet as mx

import ciranda.mxnet as hvd

hvd.init()
mx.random.seed(1)
x, y = elastic_jobs.digits()
net = mx.gluon.nn.Sequential()
net.add(mx.gluon.nn.Dense(16, in_units=64, activation="tanh"), mx.gluon.nn.Dense(10, in_units=16))
net.initialize(mx.init.Xavier())
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while elastic_jobs.must_wait(state.step, hvd.size()):
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size())
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x[mine])), mx.nd.array(y[mine])).sum()
        loss.backward()
        trainer.step(len(mine))
        everybodys = hvd.allgather(mx.nd.array(mine, dtype="int32"), name="rows").asnumpy()
        state.rows = state.rows + sorted(int(row) for row in everybodys)
        state.step += 1
        state.commit()


state = hvd.elastic.MXNetState(net.collect_params(), trainer, step=0, rows=[])
train(state)
weights = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
elastic_jobs.report(hvd.rank(), hvd.size(), weights, state.rows, net(mx.nd.array(x)).asnumpy())
