"""An elastic state of parameters, a trainer and an iteration, and Horovod's scripts."""

from __future__ import annotations

from pathlib import Path

import elastic_jobs
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


def _fails_before_a_commit() -> None:
    """What has failed does not take the place of what was saved before."""
    from mxnet_ranks import hvd, mx, np, raised

    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    state = hvd.elastic.MXNetState(net.collect_params(), iteration=1)
    net.weight.data()[:] += 1
    state.commit()
    net.weight.data()[:] += hvd.allreduce(mx.nd.ones((2, 3 + (hvd.rank() == 1))), name="of other shapes")[:, :3]
    state.iteration = 2
    error = raised(state.commit)
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    state.restore()
    np.testing.assert_array_equal(net.weight.data().asnumpy(), np.full((2, 3), 2))
    assert state.iteration == 1


def _deferred_at_the_commit() -> None:
    """What was initialized after the last commit is deferred once more, and broadcast when it is initialized again."""
    from mxnet_ranks import agree, hvd, mx, np

    mx.random.seed(hvd.rank())
    np.random.seed(hvd.rank())
    net = mx.gluon.nn.Dense(2)
    net.initialize(mx.init.Xavier())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    state = hvd.elastic.MXNetState(net.collect_params(), trainer, iteration=0)
    begun: list[bool] = []

    @hvd.elastic.run
    def train(state: hvd.elastic.MXNetState) -> None:
        begun.append(net.weight._data is None and bool(net.weight._deferred_init))
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 3))).sum()
        loss.backward()
        agree({"weight": net.weight.data().asnumpy()})
        trainer.step(4)
        if len(begun) == 1:
            net.weight.set_data(net.weight.data() * 100)
            if hvd.rank() == 1:
                raise hvd.errors.AbortedError("as if a collective had failed here")
            hvd.allreduce(mx.nd.ones((2,)), name="which rank 1 never makes").asnumpy()

    train(state)
    assert begun == [True, True]
    weight = net.weight.data().asnumpy()
    agree({"weight": weight})
    assert abs(weight).max() < 5


def _loss_scaler() -> None:
    """That of AMP goes back with the rest, and is the same on all ranks."""
    from mxnet.contrib.amp.loss_scaler import LossScaler
    from mxnet_ranks import hvd, mx

    param = mx.gluon.Parameter("weight", shape=(2,))
    param.initialize()
    trainer = hvd.DistributedTrainer([param], "sgd")
    trainer._amp_loss_scaler = scaler = LossScaler()
    state = hvd.elastic.MXNetState(trainer=trainer)
    saved = dict(vars(scaler))
    scaler._loss_scale, scaler._next_loss_scale, scaler._unskipped = 2.0, 4.0, 7
    state.restore()
    assert trainer._amp_loss_scaler is scaler
    assert vars(scaler) == saved
    scaler._next_loss_scale = 8.0 + hvd.rank()
    state.sync()
    assert vars(scaler) == {**saved, "_next_loss_scale": 8.0}
    scaler._next_loss_scale = 1.0
    state.restore()
    assert scaler._next_loss_scale == 8.0


def _initialized_anew_since_the_commit() -> None:
    """A rank alone goes back to the values before, although the parameter is one that is broadcast."""
    from mxnet_ranks import hvd, mx, np

    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params())
    state = hvd.elastic.MXNetState(net.collect_params())
    before = net.weight.data().asnumpy()
    net.initialize(mx.init.Zero(), force_reinit=True)
    net.weight.data().wait_to_read()
    if hvd.rank() == 1:
        net.weight._data = net.weight._grad = None
        net.weight._deferred_init = (mx.init.Zero(), [mx.cpu()], None, None)
        state.restore()
        np.testing.assert_array_equal(net.weight.data().asnumpy(), before)
    hvd.barrier()
    mx.nd.waitall()


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
        if turn == 2:
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
    three.run(_deferred_at_the_commit)


def test_what_is_saved(three: Ranks) -> None:
    three.run(_fails_before_a_commit)
    three.run(_loss_scaler)
    three.run(_initialized_anew_since_the_commit)


@pytest.mark.filterwarnings("ignore:the argument `average`")
def test_scripts_written_for_horovod(three: Ranks) -> None:
    three.run(_horovod)
    three.run(_joined_again_and_again)


def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    elastic_jobs.check(Path(__file__).with_name("elastic_script.py"), tmp_path)
