"""What programs have besides: averaged optimizer state, loss scaling, recomputation, sparse rows, norms."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import training_ranks as training
from writing import close, raised, running, static

import ciranda.paddle as hvd
from ciranda.errors import InvalidArgumentError
from ciranda.paddle.nn import ShardedLinear, sharded_softmax_cross_entropy


def _snapshots(made: Any, n_runs: int, after: Callable[[int, float], None] = lambda *_: None) -> list[dict[str, Any]]:
    """Return what is in the scope after each run."""
    main, startup, names, loss = made
    x, y = training._mine()
    found = []
    with running(main) as exe:
        exe.run(startup)
        scope = paddle.static.global_scope()
        for name, value in zip(names, training.parameters(), strict=True):
            scope.find_var(name).get_tensor().set(value, paddle.CPUPlace())
        for step in range(n_runs):
            (now,) = exe.run(main, {"x": x[step], "y": y[step]}, [loss])
            kept = [*names, *_velocities(main, scope)]
            found.append({name: np.array(scope.find_var(name).get_tensor()) for name in kept})
            after(step, float(now))
    return found


def _velocities(main: Any, scope: Any) -> list[str]:
    is_old = isinstance(main, paddle.base.framework.Program)
    everything = [each.name for each in main.list_vars()] if is_old else scope.local_var_names()
    return [each for each in everything if "velocity" in each]


def _are_alike(found: dict[str, Any], is_velocity: bool = False) -> bool:
    chosen = {name: value for name, value in found.items() if ("velocity" in name) == is_velocity}
    everyones = hvd.allgather_object(chosen)
    assert everyones[0]
    return all(np.array_equal(each[name], everyones[0][name]) for each in everyones for name in everyones[0])


def averaged_state(is_old: bool) -> None:
    """With its momenta averaged too, LocalSGD is the training of one process; else each rank keeps its own."""
    transpilers = [hvd.LocalSGD(2, 1), hvd.LocalSGD(2, 1, average_state=True, differences=not is_old)]
    # In the old IR one operator steps all parameters.
    runs = [
        _snapshots(training.written(training.OPTIMIZERS["merged"], is_old, each.transpile), 3) for each in transpilers
    ]
    assert not _are_alike(runs[0][-1], is_velocity=True)
    assert _are_alike(runs[1][-1], is_velocity=True)
    assert all(_are_alike(each[-1]) for each in runs)


def adaptive_interval(is_old: bool, differences: bool = False) -> None:
    """Averages come after 2 runs, then 4, as the loss that is reported has grown fourfold, then 1."""
    transpiler = hvd.LocalSGD(2, 2, adaptive=True, max_k_steps=4, differences=differences)
    made = training.written(training.OPTIMIZERS["sgd"], is_old, transpiler.transpile)
    losses = [1.0, 1.0, 4.0, 4.0, 4.0, 4.0, 0.1, 0.1]
    found = _snapshots(made, 8, lambda step, _: transpiler.report_loss(losses[step]))
    # The losses of runs 2 to 3 choose the interval 4, which runs 4 to 7 are.
    assert [_are_alike(each) for each in found] == [step in (1, 3, 7) for step in range(8)]
    assert transpiler.k_steps == 3
    plain = hvd.LocalSGD(2, 2)
    training.written(training.OPTIMIZERS["sgd"], is_old, plain.transpile)
    assert isinstance(raised(lambda: plain.report_loss(1.0)), InvalidArgumentError)


class _ScaledInPir:
    """What GradScaler does to a program of PIR where it is on. On CPUs it turns itself off."""

    def __init__(self, amp: Any) -> None:
        self._amp = amp

    def minimize(self, loss: Any, startup: Any) -> None:
        self._amp._loss_scaling = paddle.pir.core.create_persistable_value(
            "float32", [1], "loss_scaling", initializer=paddle.nn.initializer.ConstantInitializer(8.0)
        )
        self._amp._scaled_loss = loss * self._amp._loss_scaling
        self._amp.minimize(self._amp._scaled_loss, startup)


def _scaling(is_old: bool) -> Any:
    """Return Momentum with loss scaling, all in single precision."""
    black = {"mul", "matmul", "matmul_v2", "elementwise_add", "tanh", "square", "mean", "reduce_mean", "scale"}
    lists = paddle.static.amp.CustomOpLists(custom_black_list=black)
    plain = paddle.optimizer.Momentum(0.05, 0.9)
    amp = paddle.static.amp.decorate(
        plain, lists, init_loss_scaling=8.0, use_dynamic_loss_scaling=True, incr_every_n_steps=1000,
        decr_every_n_nan_or_inf=1,
    )  # fmt: skip
    return amp if is_old else _ScaledInPir(amp)


def scaled_with_own(is_old: bool) -> None:
    """A gradient that is one rank's own, and not finite, has all ranks leave out the step."""
    with static(is_old) as (main, startup):
        x, z = (paddle.static.data(name, [None, 3], "float32") for name in ("x", "z"))
        shared, own = (paddle.nn.Linear(3, 1, weight_attr=paddle.ParamAttr(name=name)) for name in ("shared", "own"))
        own.bias.stop_gradient = True
        _scaling(is_old).minimize(paddle.mean(shared(x)) + paddle.mean(own(z)), startup)
        hvd.GradAllReduce(distributed=["own"]).transpile(startup, main)
    ones = np.ones((2, 3), np.float32)
    with running(main) as exe:
        exe.run(startup)
        tensor = paddle.static.global_scope().find_var("shared").get_tensor()
        values = [np.array(tensor)]
        for bad in (True, False):
            exe.run(main, {"x": ones, "z": ones * (np.inf if bad and hvd.rank() == 1 else 1)}, [])
            values.append(np.array(tensor))
            assert _are_alike({"shared": values[-1]})
        changed = [not np.array_equal(*both) for both in itertools.pairwise(values)]
        assert changed == [False, True], changed


def scaled_losses(is_old: bool) -> None:
    """Loss scaling: where one rank's gradients overflow, all ranks leave out the step, and go on alike."""
    made = training.written(lambda: _scaling(is_old), is_old, hvd.GradAllReduce(2, 0).transpile)
    found, _ = training.trained(made, *training._mine(), training.parameters())
    for mine, wanted in zip(found, training._alone("momentum", is_old)[0], strict=True):
        close(mine, wanted, 2e-6)
    main, startup, names, loss = made
    x, y = training._mine()
    with running(main) as exe:
        exe.run(startup)
        tensor = paddle.static.global_scope().find_var(names[0]).get_tensor()
        before = np.array(tensor)
        y_now = np.full_like(y[0], np.inf) if hvd.rank() == 1 else y[0]
        exe.run(main, {"x": x[0], "y": y_now}, [loss])
        assert np.array_equal(before, np.array(tensor))
        exe.run(main, {"x": x[0], "y": y[0]}, [loss])
        assert not np.array_equal(before, np.array(tensor))
        assert _are_alike({"weight": np.array(tensor)})


def recomputed(is_old: bool) -> None:
    """Activations computed again in the backward pass: the old IR has an optimizer for it."""
    if not is_old:
        return

    def written(rewrite: Callable[..., None]) -> Any:
        with static(is_old) as (main, startup):
            x, y = (paddle.static.data(name, [None, width], "float32") for name, width in (("x", 6), ("y", 2)))
            net = training.Net()
            hidden = paddle.tanh(net.first(x))
            out = net.last(paddle.tanh(net.twice(paddle.tanh(net.twice(hidden)))))
            loss = paddle.mean(paddle.square(paddle.subtract(out, y)))
            optimizer = paddle.incubate.optimizer.RecomputeOptimizer(paddle.optimizer.SGD(0.1))
            optimizer._set_checkpoints([hidden])
            optimizer.minimize(loss, startup)
            rewrite(startup, main)
            return main, startup, [each.name for each in net.parameters()], loss

    found, _ = training.trained(written(hvd.GradAllReduce(2, 0).transpile), *training._mine(), training.parameters())
    for mine, wanted in zip(found, training._alone("sgd", is_old)[0], strict=True):
        close(mine, wanted, 2e-6)


def accumulated(is_old: bool) -> None:
    """Gradients of two runs merged: the old IR has an optimizer for it, which takes what has been combined."""
    if not is_old:
        return

    def merging(plain: Any) -> Any:
        return paddle.incubate.optimizer.GradientMergeOptimizer(plain, k_steps=2)

    made = training.written(lambda: merging(hvd.DistributedOptimizer(paddle.optimizer.SGD(0.1))), is_old)
    found, _ = training.trained(made, *training._mine(), training.parameters())
    x, y = (each.reshape(training.N_STEPS, -1, each.shape[-1]) for each in training.batches())
    alone = training.written(lambda: merging(paddle.optimizer.SGD(0.1)), is_old)
    for mine, wanted in zip(found, training.trained(alone, x, y, training.parameters())[0], strict=True):
        close(mine, wanted, 2e-6)
    transpile = hvd.GradAllReduce().transpile
    error = raised(lambda: training.written(lambda: merging(paddle.optimizer.SGD(0.1)), is_old, transpile))
    assert isinstance(error, InvalidArgumentError), error
    assert "within control flow" in str(error), error


def sparse_gradients(is_old: bool) -> None:
    """Combined with all their rows, in programs and in dygraph."""
    everyones = [np.array([rank, rank, 3]) for rank in range(hvd.size())]
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    wanted = table.copy()
    for rows in everyones:
        np.add.at(wanted, rows, np.full((3, 3), -0.1 * 2 / 9 / hvd.size(), np.float32))
    for make in (paddle.optimizer.SGD, paddle.optimizer.Adam):
        with static(is_old) as (main, startup):
            rows = paddle.static.data("rows", [None], "int64")
            embedding = paddle.nn.Embedding(5, 3, sparse=True, weight_attr=paddle.ParamAttr(name="table"))
            # Used twice, so that two sparse gradients are summed.
            make(0.1).minimize(paddle.mean(embedding(rows)) + paddle.mean(embedding(rows)), startup)
            hvd.GradAllReduce().transpile(startup, main)
        with running(main) as exe:
            exe.run(startup)
            tensor = paddle.static.global_scope().find_var("table").get_tensor()
            tensor.set(table, paddle.CPUPlace())
            exe.run(main, {"rows": everyones[hvd.rank()]}, [])
            if make is paddle.optimizer.SGD:
                close(np.array(tensor), wanted)
            assert _are_alike({"table": np.array(tensor)})
    eager = paddle.nn.Embedding(5, 3, sparse=True)
    eager.weight.set_value(table)
    optimizer = hvd.DistributedOptimizer(paddle.optimizer.SGD(0.1, parameters=eager.parameters()))
    rows = paddle.to_tensor(everyones[hvd.rank()])
    (eager(rows).mean() + eager(rows).mean()).backward()
    optimizer.step()
    close(eager.weight.numpy(), wanted)
    optimizer.clear_grad()
    _clipped_sparse(is_old)
    one = paddle.nn.Linear(2, 1)
    twice = hvd.DistributedOptimizer(paddle.optimizer.SGD(0.1, parameters=one.parameters()))
    for _ in range(2):
        one(paddle.ones([1, 2])).sum().backward()
    assert "a second time" in str(raised(twice.step))
    hvd.barrier()


def _clipped_sparse(is_old: bool) -> None:
    """What reads a sparse gradient as such is refused, in the old IR (PIR makes them dense)."""
    with static(is_old) as (main, startup):
        embedding = paddle.nn.Embedding(5, 3, sparse=True, weight_attr=paddle.ParamAttr(name="table"))
        optimizer = paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.3))
        optimizer.minimize(paddle.mean(embedding(paddle.static.data("rows", [None], "int64"))), startup)
        if is_old:
            error = raised(lambda: hvd.GradAllReduce().transpile(startup, main))
            assert isinstance(error, InvalidArgumentError), error
            assert all(part in str(error) for part in ("table", "sparse=False")), error


def lazy_optimizers(is_old: bool) -> None:
    """An optimizer that updates only the rows of a sparse gradient is refused; one of dense gradients is not."""

    def lazy(**more: Any) -> Any:
        return paddle.optimizer.Adam(0.1, lazy_mode=True, **more)

    def attempt(sparse: bool, wrapped: bool) -> None:
        with static(is_old) as (main, startup):
            embedding = paddle.nn.Embedding(5, 3, sparse=sparse, weight_attr=paddle.ParamAttr(name="table"))
            optimizer = hvd.DistributedOptimizer(lazy()) if wrapped else lazy()
            optimizer.minimize(paddle.mean(embedding(paddle.static.data("rows", [None], "int64"))), startup)
            if not wrapped:
                hvd.GradAllReduce().transpile(startup, main)

    def in_dygraph() -> None:
        embedding = paddle.nn.Embedding(5, 3, sparse=True, weight_attr=paddle.ParamAttr(name="table"))
        optimizer = hvd.DistributedOptimizer(lazy(parameters=embedding.parameters()))
        embedding(paddle.to_tensor([0, 3])).sum().backward()
        optimizer.step()

    attempts: list[Callable[[], None]] = [in_dygraph]
    for wrapped in (False, True):
        attempt(False, wrapped)
        if is_old:  # PIR makes them dense
            attempts.append(lambda wrapped=wrapped: attempt(True, wrapped))  # type: ignore[misc]
    for each in attempts:
        error = raised(each)
        assert isinstance(error, InvalidArgumentError), error
        assert all(part in str(error) for part in ("table", "lazy_mode=False", "sparse=False")), error


def norms_that_would_differ(is_old: bool) -> None:
    """A gradient that is a rank's own must not decide how those of all are clipped."""

    def clipped() -> Any:
        return paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.3))

    def attempt(rewrite: Callable[..., None], optimizer: Callable[[], Any] = clipped) -> BaseException:
        return raised(lambda: training.written(optimizer, is_old, rewrite))

    name = "linear_2.w_0"
    for error in (
        attempt(hvd.GradAllReduce(distributed=[name]).transpile),
        attempt(lambda *_: None, lambda: hvd.DistributedOptimizer(clipped(), distributed=[name])),
    ):
        assert isinstance(error, InvalidArgumentError), error
        assert all(part in str(error) for part in (name, "need_clip=False")), error
    with static(is_old) as (main, startup):
        features = paddle.nn.Linear(4, 4)(paddle.static.data("x", [None, 4], "float32"))
        labels = paddle.static.data("labels", [None], "int64")
        clipped().minimize(sharded_softmax_cross_entropy(features, labels, ShardedLinear(4, 5)), startup)
        hvd.GradAllReduce().transpile(startup, main)


def matrix(is_old: bool) -> None:
    """Optimizers x rings x size of buckets x who rewrites, every pair of options at least once; 50 steps of each."""
    training.N_STEPS = 50
    kinds, rings, sizes = tuple(training.OPTIMIZERS), (1, 2, 4), (0, 1e-4, 4)
    for index, (kind, nrings) in enumerate(itertools.product(kinds, rings)):
        bucket_mb = sizes[(index + index // len(rings)) % len(sizes)]
        if index % 2:
            training.gradients_transpiled(kind, is_old, nrings, bucket_mb)
        else:
            training.wrapped(kind, is_old, {"nrings": nrings, "bucket_mb": bucket_mb})
