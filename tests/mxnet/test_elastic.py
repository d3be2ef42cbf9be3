"""An elastic state of parameters, a trainer and an iteration, and Horovod's scripts."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def _train() -> None:
    from mxnet_ranks import agree, hvd, mx

    mx.random.seed(hvd.rank())
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    state = hvd.elastic.MXNetState(net.collect_params(), trainer, iteration=0)
    failed: list[int] = []
    first: list[float] = []

    @hvd.elastic.run
    def train(state: hvd.elastic.MXNetState) -> None:
        while state.iteration < 5:
            with mx.autograd.record():
                loss = (net(mx.nd.ones((4, 3))) ** 2).sum()
            loss.backward()
            first.append(float(loss.asscalar()))
            trainer.step(4)
            if state.iteration == 3 and not failed:
                failed.append(state.iteration)
                net.weight.set_data(net.weight.data() * 3)
                if hvd.rank() == 1:
                    raise hvd.errors.AbortedError("as if a collective had failed here")
                hvd.allreduce(mx.nd.ones((2,)), name="which rank 1 never makes").asnumpy()
            state.iteration += 1
            state.commit()

    train(state)
    assert failed == [3]
    assert state.iteration == 5
    assert first[3] == first[4], first  # that step was made again, from the same
    agree({"weight": net.weight.data().asnumpy()})


def _joined_again_and_again() -> None:
    """What has no name is numbered anew, and nothing of the world before is met, however it was left."""
    from mxnet_ranks import agree, mx, np, raised

    import horovod.mxnet as hvd

    rank, n = hvd.rank(), hvd.size()
    for turn in range(6):
        total = hvd.allreduce(mx.nd.full((3,), rank), average=False)
        assert hvd.allgather(mx.nd.ones((rank + 1, 2))).shape == (n * (n + 1) // 2, 2)
        received, splits = hvd.alltoall(mx.nd.arange(2 * n), splits=[2] * n)
        assert splits.asnumpy().tolist() == [2] * n
        np.testing.assert_array_equal(received.asnumpy(), [2 * rank, 2 * rank + 1] * n)
        mx.random.seed(rank + turn)
        net = mx.gluon.nn.Dense(3)
        net.initialize()
        hvd.broadcast_parameters(net.collect_params(), root_rank=turn % n)
        trainer = hvd.DistributedTrainer(net.collect_params(), mx.optimizer.SGD(learning_rate=0.1))
        with mx.autograd.record():
            loss = net(mx.nd.full((2, 4), rank + 1)).sum()
        loss.backward()
        trainer.step(2)
        agree({"weight": net.weight.data().asnumpy()})
        assert total.asnumpy()[0] == n * (n - 1) / 2
        if turn % 2:
            assert isinstance(raised(lambda: hvd.allreduce(mx.nd.ones((2 + rank,)))), hvd.HorovodInternalError)
        if turn % 3 == 2:
            hvd.allreduce_(mx.nd.ones((2,)), name=f"which rank {rank} alone makes")
        hvd.shutdown()
        while True:  # of several errors that are there, MXNet raises one
            try:
                mx.nd.waitall()
                break
            except hvd.HorovodInternalError:
                pass
        hvd.init()


def _horovod() -> None:
    from mxnet_ranks import mx

    import ciranda.mxnet
    import horovod.mxnet as hvd
    from horovod.mxnet.mpi_ops import allreduce

    assert allreduce is hvd.allreduce is ciranda.mxnet.allreduce
    hvd.init()
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", gradient_predivide_factor=2.0)
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 3))).sum()
    loss.backward()
    trainer.step(2)
    assert hvd.allreduce(mx.nd.ones((2,)), average=False).asnumpy()[0] == hvd.size()


def test_it_starts_again_from_its_last_commit(three: Ranks) -> None:
    three.run(_train)


@pytest.mark.filterwarnings("ignore:the argument `average`")
def test_scripts_written_for_horovod(three: Ranks) -> None:
    three.run(_horovod)
    three.run(_joined_again_and_again)
