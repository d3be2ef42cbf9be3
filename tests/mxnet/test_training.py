"""DistributedTrainer and DistributedOptimizer: as one process that has all batches."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

BATCH = 6
STEPS = 4


def _cnn(n_classes: int = 3, **dense: Any) -> Any:
    from mxnet_ranks import mx

    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(), nn.Flatten(), nn.Dense(8, activation="tanh", **dense))
    net.add(nn.Dense(n_classes))
    return net


def _batches() -> list[tuple[Any, Any]]:
    """Return the batches of all ranks together."""
    from mxnet_ranks import hvd, np

    rng = np.random.default_rng(3)
    n = BATCH * hvd.size()
    return [(rng.normal(size=(n, 1, 8, 8)).astype("f"), rng.integers(0, 3, n).astype("f")) for _ in range(STEPS)]


def _train(
    net: Any, trainer: Any, batches: list[tuple[Any, Any]], step: Callable[[Any, int], None] | None = None
) -> None:
    from mxnet_ranks import mx

    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in batches:
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x)), mx.nd.array(y))
        loss.backward()
        if step is None:
            trainer.step(len(x))
        else:
            step(trainer, len(x))


def _mine(batches: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    from mxnet_ranks import hvd

    return [(x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]) for x, y in batches]


def _values(net: Any) -> dict[str, Any]:
    return {str(index): param.data().asnumpy() for index, param in enumerate(net.collect_params().values())}


def _copy_of(net: Any, made: Any) -> Any:
    """Return `made` with the parameters that `net` has got from the broadcast."""
    from mxnet_ranks import mx, np

    made.initialize()
    made(mx.nd.array(np.zeros((1, 1, 8, 8), "f")))
    for one, other in zip(net.collect_params().values(), made.collect_params().values(), strict=True):
        other.set_data(one.data())
    return made


def _as_one_process(
    hybridize: bool,
    options: dict[str, Any],
    step: Callable[[Any, int], None] | None = None,
    tolerance: float = 1e-6,
    optimizer: Callable[[], tuple[str, dict[str, Any]]] = lambda: ("sgd", {"learning_rate": 0.1, "momentum": 0.9}),
    batches: Callable[[], list[tuple[Any, Any]]] = _batches,
) -> None:
    from mxnet_ranks import agree, hvd, mx, np

    mx.random.seed(hvd.rank())
    np.random.seed(hvd.rank())
    n_classes = 3 if batches is _batches else 10
    net = _cnn(n_classes)
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), *optimizer(), **options)
    net(mx.nd.array(np.zeros((1, 1, 8, 8), "f")))
    assert trainer._scale == 1
    alone = _copy_of(net, _cnn(n_classes))
    _train(net, trainer, _mine(batches()), step)
    _train(alone, mx.gluon.Trainer(alone.collect_params(), *optimizer(), kvstore=None), batches())
    agree(_values(net))
    for name, value in _values(alone).items():
        np.testing.assert_allclose(_values(net)[name], value, rtol=tolerance * 10, atol=tolerance, err_msg=name)


def _digits() -> list[tuple[Any, Any]]:
    from mxnet_ranks import hvd
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    n = BATCH * hvd.size()
    parts = [slice(begin, begin + n) for begin in range(0, n * STEPS, n)]
    return [((images[part] / 16).reshape(-1, 1, 8, 8).astype("f"), labels[part].astype("f")) for part in parts]


def _on_digits() -> None:
    for hybridize in (False, True):
        _as_one_process(hybridize, {}, batches=_digits)
    _module(0, 1.0)


def _in_halves(trainer: Any, batch_size: int) -> None:
    trainer.allreduce_grads()
    trainer.update(batch_size)


def _options() -> None:
    from mxnet_ranks import hvd, mx

    for hybridize in (False, True):
        _as_one_process(hybridize, {})
    _as_one_process(True, {"num_groups": 2, "gradient_predivide_factor": -3.0, "prefix": "mine"})
    _as_one_process(False, {}, _in_halves)
    _as_one_process(False, {}, lambda trainer, n: trainer.step(n, ignore_stale_grad=True))
    _as_one_process(False, {"compression": hvd.Compression.fp16, "num_groups": 1}, tolerance=5e-3)

    def scheduled() -> tuple[str, dict[str, Any]]:
        schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)
        return "sgd", {"learning_rate": 0.1, "lr_scheduler": schedule}

    _as_one_process(False, {}, optimizer=scheduled)


def _first_step_before_the_first_pass() -> None:
    """The trainer is made before any shape is known; one block is never used."""
    from mxnet_ranks import agree, hvd, mx, np, raised

    mx.random.seed(hvd.rank())
    used, unused = _cnn(), mx.gluon.nn.Dense(3)
    for net in (used, unused):
        net.initialize(mx.init.Xavier())
    params = mx.gluon.ParameterDict()
    params.update(used.collect_params())
    params.update(unused.collect_params())
    hvd.broadcast_parameters(params)
    trainer = hvd.DistributedTrainer(params, "sgd", {"learning_rate": 0.1})
    _train(used, trainer, _mine(_batches()), lambda its, n: its.step(n, ignore_stale_grad=True))
    agree(_values(used))
    assert isinstance(raised(lambda: trainer.step(3)), (UserWarning, mx.base.MXNetError))
    unused(mx.nd.array(np.ones((2, 5), "f")))
    agree(_values(unused))


def _used_on_one_rank_only(in_halves: bool) -> None:
    """A parameter that a rank has not used gets the update of those that have."""
    from mxnet_ranks import agree, hvd, mx

    def step() -> None:
        if in_halves:
            trainer.allreduce_grads()
            trainer.update(1, ignore_stale_grad=True)
        else:
            trainer.step(1, ignore_stale_grad=True)

    one, other = (mx.gluon.Parameter(name, shape=(2,), init="ones") for name in ("one", "other"))
    for param in (one, other):
        param.initialize()
    trainer = hvd.DistributedTrainer([one, other], "sgd", {"learning_rate": 1.0})
    for turn in range(2):
        with mx.autograd.record():
            loss = one.data().sum() * (hvd.rank() + 1)
            if hvd.rank() == 1 and turn == 0:
                loss = loss + other.data().sum() * 3
        loss.backward()
        step()
    agree({"one": one.data().asnumpy(), "other": other.data().asnumpy()})
    assert one.data().asnumpy()[0] == 1 - 2 * (hvd.size() + 1) / 2
    assert abs(other.data().asnumpy()[0] - (1 - 3 / hvd.size())) < 1e-6


def _used_where_another_has_it_deferred() -> None:
    from mxnet_ranks import hvd, mx, raised

    net = mx.gluon.nn.Dense(2, prefix="late_")
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    if hvd.rank() == 1:
        with mx.autograd.record():
            loss = net(mx.nd.ones((2, 3))).sum()
        loss.backward()
    error = raised(lambda: trainer.step(1, ignore_stale_grad=True))
    assert isinstance(error, ValueError), repr(error)
    assert "'late_weight' was used on one rank, but on another its initialization is deferred" in str(error)


def _deferred_on_one_rank_at_a_step() -> None:
    from mxnet_ranks import hvd, mx, raised

    net = mx.gluon.nn.Dense(2, prefix="lacking_")
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    if hvd.rank() != 1:
        with mx.autograd.record():
            loss = net(mx.nd.ones((2, 3))).sum()
        loss.backward()
    error = raised(lambda: trainer.step(1))
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    assert "'lacking_weight' is initialized on rank 0 but deferred on rank 1" in str(error), error


def _two_trainers() -> None:
    """Each of a net of its own, which share the names of their parameters, with a compression of the user's."""
    from mxnet_ranks import agree, hvd, mx

    class Halved(hvd.Compressor):
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor / 2, None

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor * 2

    params = [mx.gluon.Parameter("alike", shape=(2,), init="ones") for _ in range(2)]
    for param in params:
        param.initialize()
    sgd = ("sgd", {"learning_rate": 1.0})
    trainers = [
        hvd.DistributedTrainer(params[:1], *sgd, compression=Halved),
        hvd.DistributedTrainer(params[1:], *sgd),
    ]
    for _ in range(3):
        with mx.autograd.record():
            losses = [
                param.data().sum() * factor * (hvd.rank() + 1) for param, factor in zip(params, (1, 5), strict=True)
            ]
        mx.autograd.backward(losses)
        order = (0, 1) if hvd.rank() == 1 else (1, 0)
        for trainer in trainers:  # at the first step the ranks compare what they train
            trainer._compare()
        for index in order:
            trainers[index].step(1)
    agree({str(index): param.data().asnumpy() for index, param in enumerate(params)})
    for param, factor in zip(params, (1, 5), strict=True):
        assert abs(param.data().asnumpy()[0] - (1 - 3 * factor * (hvd.size() + 1) / 2)) < 1e-5


def _kinds_of_gradients() -> None:
    from mxnet_ranks import agree, hvd, mx, np

    rank, n = hvd.rank(), hvd.size()
    fixed = mx.gluon.Parameter("fixed", shape=(2,), init="ones", grad_req="null")
    added = mx.gluon.Parameter("added", shape=(2,), init="ones", grad_req="add")
    rows = mx.gluon.Parameter("rows", shape=(9, 2), init="ones", grad_stype="row_sparse")
    sparse = mx.gluon.Parameter("sparse", shape=(9, 2), init="ones", stype="row_sparse", grad_stype="row_sparse")
    for param in (fixed, added, rows, sparse):
        param.initialize()
    trainer = hvd.DistributedTrainer([fixed, added, rows, sparse], "sgd", {"learning_rate": 1.0})
    numbers = mx.nd.array([0, 2 + rank])
    for _ in range(2):
        with mx.autograd.record():
            loss = added.data().sum() * (rank + 1) * fixed.data().sum()
            loss = loss + mx.nd.Embedding(numbers, rows.data(), 9, 2, sparse_grad=True).sum() * (rank + 1)
            weight = sparse.row_sparse_data(numbers)
            loss = loss + mx.nd.Embedding(numbers, weight, 9, 2, sparse_grad=True).sum() * (rank + 1)
        loss.backward()
    trainer.step(1)
    agree({"added": added.data().asnumpy(), "rows": rows.data().asnumpy()})
    assert fixed.data().asnumpy()[0] == 1
    assert added.data().asnumpy()[0] == 1 - 2 * 2 * (n + 1) / 2
    wanted = np.ones((9, 2))
    wanted[0] -= (n + 1) / 2
    for each in range(n):
        wanted[2 + each] -= (each + 1) / n
    np.testing.assert_allclose(rows.data().asnumpy(), wanted, rtol=1e-6)
    every = sparse.row_sparse_data(mx.nd.arange(9)).tostype("default").asnumpy()
    np.testing.assert_allclose(every, wanted, rtol=1e-6)


def _rows_as_tensors() -> None:
    """Averages of rows have the bits that averages of tensors have, also of integers that float32 has not."""
    from mxnet_ranks import hvd, mx, np

    from ciranda.mxnet._calls import Call
    from ciranda.mxnet.gradients import reduce_

    generator = np.random.default_rng(hvd.rank())
    indices = [1, *range(3, 3 + hvd.rank())]
    for dtype in ("float32", "float16", "float64", "int32", "int64"):
        for prescale, postscale in ((1.0, 1.0), (0.4, 2.5)):
            values = (generator.normal(size=(len(indices), 2)) * 2.0 ** (3 if dtype[0] == "f" else 30)).astype(dtype)
            rows = mx.nd.sparse.row_sparse_array((values, indices), shape=(6, 2), dtype=dtype)
            wanted = hvd.allreduce(
                rows.tostype("default"), name="whole", prescale_factor=prescale, postscale_factor=postscale
            )
            reduce_([rows], Call("rows", hvd.global_process_set, prescale=prescale, postscale=postscale))
            assert rows.stype == "row_sparse"
            np.testing.assert_array_equal(rows.tostype("default").asnumpy(), wanted.asnumpy())
    none = mx.nd.sparse.zeros("row_sparse", (6, 2))
    reduce_([none], Call("none", hvd.global_process_set))
    assert none.indices.size == 0


def _scaled_losses() -> None:
    """The loss scaler of MXNet's AMP: where one rank's gradient overflows, none makes the step."""
    from mxnet.contrib.amp.loss_scaler import LossScaler
    from mxnet_ranks import agree, hvd, mx

    param = mx.gluon.Parameter("scaled", shape=(2,), init="ones")
    param.initialize()
    trainer = hvd.DistributedTrainer([param], "sgd", {"learning_rate": 1.0})
    trainer._amp_loss_scaler = LossScaler()
    for factor in (1.0, float("inf") if hvd.rank() == 1 else 1.0, 1.0):
        with mx.autograd.record():
            loss = param.data().sum() * factor
        loss.backward()
        trainer.step(1)
    agree({"scaled": param.data().asnumpy()})
    assert param.data().asnumpy()[0] == 1 - 2
    _scaled_losses_of_some()


def _scaled_losses_of_some() -> None:
    from mxnet.contrib.amp.loss_scaler import LossScaler
    from mxnet_ranks import agree, hvd, mx

    used, unused = (mx.gluon.Parameter(name, shape=(2,), init="ones") for name in ("used", "unused"))
    for param in (used, unused):
        param.initialize()
    trainer = hvd.DistributedTrainer([used, unused], "sgd", {"learning_rate": 1.0})
    trainer._amp_loss_scaler = LossScaler()
    with mx.autograd.record():
        loss = used.data().sum()
    loss.backward()
    for _ in range(2):  # at the second there is no gradient at all
        trainer.step(1, ignore_stale_grad=True)
    agree({"used": used.data().asnumpy(), "unused": unused.data().asnumpy()})
    assert (used.data().asnumpy()[0], unused.data().asnumpy()[0]) == (0, 1)
    assert trainer._amp_loss_scaler._unskipped == 1


def _mixed_precision() -> None:
    """MXNet's AMP, which changes the operators of the process for good."""
    from mxnet.contrib import amp
    from mxnet_ranks import agree, hvd, mx, np

    amp.init(target_dtype="bfloat16")
    net = _cnn()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    amp.init_trainer(trainer)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(4):
        for x, y in _mine(_batches()):
            with mx.autograd.record():
                loss = loss_of(net(mx.nd.array(x)), mx.nd.array(y))
                with amp.scale_loss(loss, trainer) as scaled:
                    mx.autograd.backward(scaled)
            trainer.step(BATCH)
            losses.append(float(loss.mean().asscalar()))
    agree(_values(net))
    mean = np.mean(hvd.allgather_object(losses), axis=0)
    assert mean[-STEPS:].mean() < mean[:STEPS].mean(), mean


def _several_devices() -> None:
    from mxnet_ranks import agree, hvd, mx

    devices = [mx.cpu(0), mx.cpu(1)]
    param = mx.gluon.Parameter("weight", shape=(2,), init="ones")
    param.initialize(ctx=devices)
    trainer = hvd.DistributedTrainer([param], "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        losses = [param.data(device).sum() * (index + 1 + hvd.rank()) for index, device in enumerate(devices)]
    mx.autograd.backward(losses)
    trainer.step(1)
    agree({str(device): param.data(device).asnumpy() for device in devices})
    everyone = [1 + rank + 2 + rank for rank in range(hvd.size())]
    assert abs(param.data(devices[1]).asnumpy()[0] - (1 - sum(everyone) / hvd.size())) < 1e-6


def _wrong_trainers() -> None:
    from mxnet_ranks import hvd, mx, np, raised

    rank = hvd.rank()
    params = [mx.gluon.Parameter(f"p{index}", shape=(2,)) for index in range(3)]
    for param in params:
        param.initialize()
    for factor in (0, float("inf"), float("nan")):
        assert isinstance(
            raised(lambda factor=factor: hvd.DistributedTrainer(params, "sgd", gradient_predivide_factor=factor)),
            ValueError,
        )
    trainer = hvd.DistributedTrainer(params[: 2 + (rank == 1)], "sgd")
    error = raised(trainer.allreduce_grads)
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    assert "'p2'" in str(error), error
    odd = mx.gluon.Parameter("p0", shape=(2 + (rank == 1),))
    odd.initialize()
    error = raised(hvd.DistributedTrainer([odd], "sgd").allreduce_grads)
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    assert "(3,)" in str(error), error
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wrapped = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5))
        trainer = hvd.DistributedTrainer(params, wrapped)
    assert type(trainer.optimizer) is mx.optimizer.SGD
    assert any("DistributedOptimizer" in str(each.message) for each in told)
    np.testing.assert_equal(trainer.learning_rate, 0.5)


def _states(path: str) -> None:
    from mxnet_ranks import agree, hvd, mx

    net = _cnn(in_units=36)
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam")
    _train(net, trainer, _mine(_batches()))
    mine = f"{path}.{hvd.rank()}"
    trainer.save_states(mine)
    again = hvd.DistributedTrainer(net.collect_params(), "adam")
    again.load_states(mine)
    _train(net, again, _mine(_batches()))
    agree(_values(net))


def _module(n_groups: int, predivide: float) -> None:
    """A Module trains as one process does that has all batches."""
    from mxnet_ranks import agree, hvd, mx, np

    rng = np.random.default_rng(1)
    n = BATCH * hvd.size()
    x, y = rng.normal(size=(n * STEPS, 5)).astype("f"), rng.integers(0, 3, n * STEPS).astype("f")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="one"), act_type="tanh")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="two"), name="softmax")

    def module(part: Any, batch: int, optimizer: Any, initial: Any) -> Any:
        data = mx.io.NDArrayIter(x[part], y[part], batch_size=batch, label_name="softmax_label")
        made = mx.mod.Module(symbol)
        made.bind(data.provide_data, data.provide_label)
        made.init_params(mx.init.Xavier(), *(initial or ()))
        if initial is None:
            made_params = made.get_params()
            hvd.broadcast_parameters(made_params[0])
            made.set_params(*made_params)
            start.extend({name: array.copy() for name, array in each.items()} for each in made.get_params())
        made.init_optimizer(kvstore=None, optimizer=optimizer(batch))
        for each in data:
            made.forward_backward(each)
            made.update()
        return made.get_params()[0]

    def distributed(batch: int) -> Any:
        own = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9, rescale_grad=1.0 / batch)
        made = hvd.DistributedOptimizer(own, gradient_predivide_factor=predivide, num_groups=n_groups)
        assert made.learning_rate == 0.1
        made.set_learning_rate(0.2)
        made.wd = 0.25
        assert (own.wd, own.learning_rate, pickle.loads(pickle.dumps(made)).wd) == (0.25, 0.2, 0.25)
        return made

    start: list[Any] = []
    mx.random.seed(hvd.rank())
    rank, size = hvd.rank(), hvd.size()
    # Of each batch of all, this rank's rows.
    mine = np.concatenate([np.arange(begin + rank, begin + n, size) for begin in range(0, n * STEPS, n)])
    found = module(mine, BATCH, distributed, None)
    plain = lambda batch: mx.optimizer.create(  # noqa: E731
        "sgd", learning_rate=0.2, momentum=0.9, wd=0.25, rescale_grad=1.0 / batch
    )
    wanted = module(slice(None), n, plain, start)
    agree({name: array.asnumpy() for name, array in found.items()})
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name].asnumpy(), array.asnumpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def _modules() -> None:
    _module(0, 1.0)
    _module(2, 4.0)


def test_as_one_process(three: Ranks) -> None:
    three.run(_options)


def test_deferred_parameters_at_the_first_step(three: Ranks) -> None:
    three.run(_first_step_before_the_first_pass)
    three.run(_used_on_one_rank_only, False)
    three.run(_used_on_one_rank_only, True)
    three.run(_used_where_another_has_it_deferred)
    three.run(_deferred_on_one_rank_at_a_step)


def test_two_trainers(three: Ranks) -> None:
    three.run(_two_trainers)


def test_gradients_of_every_kind(three: Ranks) -> None:
    three.run(_kinds_of_gradients)
    three.run(_rows_as_tensors)
    three.run(_several_devices)
    three.run(_scaled_losses)


def test_wrong_trainers(three: Ranks) -> None:
    three.run(_wrong_trainers)


def test_states(three: Ranks, tmp_path: Path) -> None:
    three.run(_states, str(tmp_path / "states"))


def test_modules(three: Ranks) -> None:
    three.run(_modules)


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_digits_as_one_process(n_ranks: int) -> None:
    with Ranks(n_ranks, env={"PYTHONPATH": str(Path(__file__).parent)}) as ranks:
        ranks.run(_on_digits)


@pytest.mark.slow
def test_mixed_precision() -> None:
    with Ranks(2, env={"PYTHONPATH": str(Path(__file__).parent)}) as ranks:
        ranks.run(_mixed_precision)
