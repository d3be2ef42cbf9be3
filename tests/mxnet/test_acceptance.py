"""Every function with every type and number of dimensions, the world left and joined around each; and MXNet's own users
of trainers: loaders of data with processes and threads, the estimator, custom operators, with the profiler on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parent)}
DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")
KINDS = tuple(itertools.product(DTYPES, (1, 2, 3)))


def _array(dtype: str, n_dims: int, n_rows: int, value: float) -> Any:
    from mxnet_ranks import mx

    return mx.nd.full((n_rows, *[3] * (n_dims - 1)), value, dtype=dtype)


def _reductions() -> None:
    from mxnet_ranks import hvd, np

    rank, n = hvd.rank(), hvd.size()
    total = n * (n + 1) // 2
    results = []
    for dtype, n_dims in KINDS:  # many in flight, which travel together
        mine = _array(dtype, n_dims, 5, rank + 1)
        name = f"{dtype}.{n_dims}"
        results += [
            (hvd.allreduce(mine, False, name, -1), total, dtype),
            (hvd.allreduce(mine, op=hvd.Max, name=f"{name}.max"), n, dtype),
            (hvd.allreduce(mine * 2, op=hvd.Sum, prescale_factor=0.5, name=f"{name}.scaled"), total, dtype),
            (hvd.allreduce_(mine.copy(), average=False, name=f"{name}.in place"), total, dtype),
            *((each, total, dtype) for each in hvd.grouped_allreduce([mine, mine], False, f"{name}.group")),
            *((each, total, dtype) for each in hvd.grouped_allreduce_([mine.copy(), mine.copy()], False)),
        ]
        if dtype not in ("uint8", "int8"):
            scattered = hvd.reducescatter(_array(dtype, n_dims, 2 * n + 1, rank + 1), hvd.Sum, f"{name}.scattered")
            assert scattered.shape[0] == 2 + (rank == 0)
            results.append((scattered, total, dtype))
    for result, wanted, dtype in results:
        assert result.dtype == np.dtype(dtype)
        assert (result.asnumpy() == wanted).all()


def _rows() -> None:
    from mxnet_ranks import hvd, mx, np

    rank, n = hvd.rank(), hvd.size()
    for dtype, n_dims in KINDS:
        name = f"{dtype}.{n_dims}"
        uneven = _array(dtype, n_dims, rank + 1, rank)
        for every in (hvd.allgather(uneven, name, 0), *hvd.grouped_allgather([uneven, uneven])):
            wanted = np.repeat(np.arange(n), np.arange(1, n + 1))
            np.testing.assert_array_equal(every.asnumpy().reshape(len(wanted), -1)[:, 0], wanted)
        for splits in ([1] * n, [n, *[0] * (n - 1)]):
            given = _array(dtype, n_dims, n, rank)
            received, counts = hvd.alltoall(given, splits, f"{name}.to")
            assert counts.asnumpy().tolist() == [splits[rank]] * n
            with mx.util.np_shape(True):
                assert received.shape == (splits[rank] * n, *given.shape[1:])
                wanted = np.repeat(np.arange(n), splits[rank])
                np.testing.assert_array_equal(received.asnumpy()[(..., *[0] * (n_dims - 1))], wanted)
        for root in range(n):
            sent = hvd.broadcast(_array(dtype, n_dims, 4, rank), root, f"{name}.{root}")
            assert (sent.asnumpy() == root).all()
            assert (hvd.broadcast_(_array(dtype, n_dims, 4, rank), root_rank=root).asnumpy() == root).all()


def _errors() -> None:
    from mxnet_ranks import hvd, mx, raised

    rank, n = hvd.rank(), hvd.size()
    ones, odd = mx.nd.ones, "int32" if rank % 2 else "float32"
    disagreeing: list[Callable[[], Any]] = [
        lambda: hvd.allreduce(ones((4 + rank,))),
        lambda: hvd.allreduce(ones((4,), dtype=odd)),
        lambda: hvd.allreduce(ones((4,) * (1 + rank % 2))),
        lambda: hvd.grouped_allreduce([ones((4,)), ones((4 + rank,))]),
        lambda: hvd.allgather(ones((4, 4 + rank))),
        lambda: hvd.allgather(ones((4,), dtype=odd)),
        lambda: hvd.broadcast(ones((4 + rank,)), 0),
        lambda: hvd.broadcast(ones((4,)), rank),
        lambda: hvd.alltoall(ones((n, 2 + rank))),
        lambda: hvd.reducescatter(ones((n, 2 + rank))),
    ]
    wrong: list[Callable[[], Any]] = [
        lambda: hvd.broadcast(ones((4,)), n),
        lambda: hvd.alltoall(ones((n,)), [2] * n),
        lambda: hvd.alltoall(ones((n,)), [1] * (n + 1)),
        lambda: hvd.alltoall(ones((n + 1,))),
    ]
    for number, call in enumerate([*disagreeing, *wrong]):
        error = raised(call)
        assert isinstance(error, mx.base.MXNetError), (number, error)
        assert isinstance(error, hvd.HorovodInternalError if number < len(disagreeing) else ValueError), (number, error)
    assert hvd.allreduce(ones((3,)), name="good").asnumpy()[0] == 1


def _anew(case: Callable[[], None]) -> None:
    from mxnet_ranks import hvd

    hvd.shutdown()
    hvd.init()
    case()


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_every_function(n_ranks: int) -> None:
    with Ranks(n_ranks, env=ENVIRONMENT) as ranks:
        for case in (_reductions, _rows, _errors):
            ranks.run(_anew, case, timeout=100)


def _clients(folder: str) -> None:
    from mxnet.gluon.contrib.estimator import CheckpointHandler, Estimator
    from mxnet_ranks import agree, hvd, mx, np

    rank = hvd.rank()
    mx.random.seed(rank)
    mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename=f"{folder}/profile.{rank}.json")
    mx.profiler.set_state("run")
    rng = np.random.default_rng(rank)
    images, labels = rng.normal(size=(96, 1, 8, 8)).astype("f"), rng.integers(0, 3, 96).astype("f")
    data = mx.gluon.data.ArrayDataset(images, labels)
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Flatten(), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", num_groups=2)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for threads in (False, True):  # processes are forked
        for x, y in mx.gluon.data.DataLoader(data, 32, shuffle=True, num_workers=2, thread_pool=threads):
            with mx.autograd.record():
                loss = loss_of(net(x.as_in_context(mx.cpu())), y.as_in_context(mx.cpu()))
            loss.backward()
            trainer.step(32)
    mx.profiler.set_state("stop")
    assert "Ciranda" in mx.profiler.dumps()
    estimator = Estimator(net=net, loss=loss_of, train_metrics=mx.metric.Accuracy(), trainer=trainer)
    handlers = [CheckpointHandler(model_dir=f"{folder}/{rank}", model_prefix="model")]
    estimator.fit(mx.gluon.data.DataLoader(data, 32), epochs=2, event_handlers=handlers)
    params = net.collect_params().items()
    agree({name: param.data().asnumpy() for name, param in params if param.grad_req != "null"})
    _custom_operator()


def _custom_operator() -> None:
    from mxnet_ranks import hvd, mx

    class Sum(mx.operator.CustomOp):  # type: ignore[misc]
        def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
            self.assign(out_data[0], req[0], hvd.allreduce(in_data[0], op=hvd.Sum, name="forward"))

        def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
            self.assign(in_grad[0], req[0], hvd.allreduce(out_grad[0], op=hvd.Sum, name="backward"))

    @mx.operator.register("sum_over_ranks")
    class _Properties(mx.operator.CustomOpProp):  # type: ignore[misc]
        def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> Sum:
            return Sum()

    n = hvd.size()
    x = mx.nd.ones((3,)) * (hvd.rank() + 1)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Custom(x, op_type="sum_over_ranks")
    y.backward()
    assert y.asnumpy()[0] == n * (n + 1) / 2
    assert x.grad.asnumpy()[0] == n


def test_what_others_train_with(tmp_path: Path) -> None:
    with Ranks(2, env=ENVIRONMENT) as ranks:
        ranks.run(_clients, str(tmp_path), timeout=100)
