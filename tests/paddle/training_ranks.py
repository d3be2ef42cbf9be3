"""Trainings that ranks make together, held against what one process makes of the same batches."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from xml.etree import ElementTree

import numpy as np
import paddle
from ranks import wait_until
from writing import close, inputs, raised, running, static

import ciranda.paddle as hvd
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.paddle import _plugin, programs
from ciranda.paddle.__main__ import main as commands

N_STEPS = 10
ROWS = 4

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda **more: paddle.optimizer.SGD(0.1, **more),
    "momentum": lambda **more: paddle.optimizer.Momentum(0.05, 0.9, **more),
    "merged": lambda **more: paddle.optimizer.Momentum(0.05, 0.9, use_multi_tensor=True, **more),
    "adam": lambda **more: paddle.optimizer.Adam(0.01, **more),
    "clipping": lambda **more: paddle.optimizer.Momentum(
        0.1, 0.9, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.3), **more
    ),
    "regularized": lambda **more: paddle.optimizer.Adam(0.01, weight_decay=paddle.regularizer.L2Decay(0.1), **more),
}


class Net(paddle.nn.Layer):  # type: ignore[misc]
    """An MLP that uses one of its layers twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = paddle.nn.Linear(6, 8)
        self.twice = paddle.nn.Linear(8, 8)
        self.last = paddle.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.last(paddle.tanh(self.twice(paddle.tanh(self.twice(paddle.tanh(self.first(x)))))))


def batches() -> tuple[Any, Any]:
    """Return what all ranks train with: step, rank, row, column."""
    rng = np.random.default_rng(5)
    shape = (N_STEPS, hvd.size(), ROWS)
    return rng.normal(size=(*shape, 6)).astype(np.float32), rng.normal(size=(*shape, 2)).astype(np.float32)


def parameters() -> list[Any]:
    """Return what training begins with: the same wherever it is called."""
    rng = np.random.default_rng(9)
    shapes = ((6, 8), (8,), (8, 8), (8,), (8, 2), (2,))
    return [rng.normal(size=shape, scale=0.4).astype(np.float32) for shape in shapes]


def written(optimizer: Callable[[], Any], is_old: bool, rewrite: Callable[..., None] = lambda *_: None) -> Any:
    """Return a program that trains, its startup program, names of parameters, and its loss."""
    with static(is_old) as (main, startup):
        x, y = (paddle.static.data(name, [None, width], "float32") for name, width in (("x", 6), ("y", 2)))
        net = Net()
        loss = paddle.mean(paddle.square(paddle.subtract(net(x), y)))
        optimizer().minimize(loss, startup)
        rewrite(startup, main)
        return main, startup, [each.name for each in net.parameters()], loss


def trained(made: Any, x: Any, y: Any, begins: list[Any] | None = None) -> tuple[list[Any], list[float]]:
    """Return the parameters after all steps, and the losses; `begins` stands for what the startup program makes."""
    main, startup, names, loss = made
    with running(main) as exe:
        exe.run(startup)
        scope = paddle.static.global_scope()
        for name, value in zip(names, begins or [], strict=False):
            scope.find_var(name).get_tensor().set(value, paddle.CPUPlace())
        losses = [float(exe.run(main, {"x": a, "y": b}, [loss])[0]) for a, b in zip(x, y, strict=True)]
        return [np.array(scope.find_var(name).get_tensor()) for name in names], losses


def _alone(kind: str, is_old: bool, begins: list[Any] | None = None) -> tuple[list[Any], list[float]]:
    x, y = (each.reshape(N_STEPS, -1, each.shape[-1]) for each in batches())
    return trained(written(OPTIMIZERS[kind], is_old), x, y, begins or parameters())


def _mine() -> tuple[Any, Any]:
    return tuple(each[:, hvd.rank()] for each in batches())  # type: ignore[return-value]


def gradients_transpiled(kind: str, is_old: bool, nrings: int, bucket_mb: float) -> None:
    transpiler = hvd.GradAllReduce(nrings, bucket_mb)
    made = written(OPTIMIZERS[kind], is_old, transpiler.transpile)
    found, losses = trained(made, *_mine(), parameters())
    wanted, losses_alone = _alone(kind, is_old)
    for mine, theirs in zip(found, wanted, strict=True):
        close(mine, theirs, 1e-6)
    close(np.mean(hvd.allgather_object(losses), axis=0), losses_alone)
    assert transpiler.plan is not None
    assert {bucket.lane for bucket in transpiler.plan.buckets} == set(range(min(nrings, len(transpiler.plan.buckets))))
    wait_until(lambda: _plugin.live_calls() == 0)


def wrapped(kind: str, is_old: bool, options: dict[str, Any], tolerance: float = 1e-6) -> None:
    made = written(lambda: hvd.DistributedOptimizer(OPTIMIZERS[kind](), **options), is_old)
    found, _ = trained(made, *_mine(), parameters())
    for mine, theirs in zip(found, _alone(kind, is_old)[0], strict=True):
        close(mine, theirs, tolerance)


def averaged_parameters(is_old: bool, k_steps: int, differences: bool = False) -> None:
    """LocalSGD against each rank's own training, averaged by hand."""
    transpiler = hvd.LocalSGD(2, k_steps, differences=differences)
    made = written(OPTIMIZERS["sgd"], is_old, transpiler.transpile)
    found, _ = trained(made, *_mine(), parameters())
    everyones = [parameters() for _ in range(hvd.size())]
    plain = written(OPTIMIZERS["sgd"], is_old)
    x, y = batches()
    for step in range(N_STEPS):
        for rank in range(hvd.size()):
            everyones[rank], _ = trained(plain, x[step : step + 1, rank], y[step : step + 1, rank], everyones[rank])
        if (step + 1) % k_steps == 0:
            mean = [np.mean(each, axis=0) for each in zip(*everyones, strict=True)]
            everyones = [mean for _ in everyones]
    for mine, wanted in zip(found, everyones[hvd.rank()], strict=True):
        close(mine, wanted, 2e-6)


def averaged_differences(is_old: bool) -> None:
    """The literal form begins with snapshots of rank 0's parameters, keeps them, and leaves distributed ones alone."""
    own = "linear_2.w_0"
    made = written(OPTIMIZERS["sgd"], is_old, hvd.LocalSGD(2, 3, differences=True, distributed=[own]).transpile)
    main, startup, names, loss = made
    x, y = _mine()
    paddle.seed(100 + hvd.rank())
    with running(main) as exe:
        exe.run(startup)
        scope = paddle.static.global_scope()
        assert scope.find_var(f"{own}.snapshot") is None
        shared = [name for name in names if name != own]

        def values(suffix: str = "") -> list[Any]:
            return [np.array(scope.find_var(name + suffix).get_tensor()) for name in shared]

        begins = hvd.allgather_object(values())
        for step in range(4):
            snapshots = values(".snapshot")
            averaged = [np.array_equal(*both) for both in zip(snapshots, values(), strict=True)]
            assert averaged == [step in (0, 3)] * len(shared), (step, averaged)
            everyones = hvd.allgather_object(snapshots)
            assert all(np.array_equal(*both) for both in zip(everyones[0], everyones[-1], strict=True)), step
            exe.run(main, {"x": x[step], "y": y[step]}, [loss])
        assert all(np.array_equal(*both) for both in zip(begins[0], begins[-1], strict=True))
        assert not np.array_equal(
            *(hvd.allgather_object(np.array(scope.find_var(own).get_tensor()))[i] for i in (0, 1))
        )


def startup_of_rank_0(is_old: bool) -> None:
    """Every rank begins with rank 0's parameters, but for a distributed one."""
    paddle.seed(100 + hvd.rank())
    made = written(OPTIMIZERS["sgd"], is_old, hvd.GradAllReduce(distributed=["linear_2.w_0"]).transpile)
    nothing: Any = np.zeros((0, 4, 1), np.float32)
    found, _ = trained(made, nothing, nothing)
    everyones = hvd.allgather_object(found)
    for index, name in enumerate(made[2]):
        is_same = all(np.array_equal(each[index], everyones[0][index]) for each in everyones)
        assert is_same == (name != "linear_2.w_0"), name


def distributed_parameter(is_old: bool) -> None:
    """It is trained with this rank's gradient; the others with those of all."""
    name = "linear_2.w_0"
    transpiler = hvd.GradAllReduce(distributed=[name])
    made = written(OPTIMIZERS["sgd"], is_old, transpiler.transpile)
    assert transpiler.plan is not None
    assert transpiler.plan.local == (name,)
    x, y = (each[:1] for each in _mine())
    found, _ = trained(made, x, y, parameters())
    own, _ = trained(written(OPTIMIZERS["sgd"], is_old), x, y, parameters())
    close(found[made[2].index(name)], own[made[2].index(name)])
    assert not np.allclose(found[0], own[0], 1e-6)
    everyones = hvd.allgather_object(found[0])
    assert all(np.array_equal(each, everyones[0]) for each in everyones)


def programs_that_are_wrong(is_old: bool) -> None:
    def refused(attempt: Callable[..., Any], *parts: str) -> None:
        error = raised(lambda: written(OPTIMIZERS["sgd"], is_old, attempt))
        assert isinstance(error, (InvalidArgumentError, MismatchError)), error
        assert all(part in str(error) for part in parts), error

    def twice(startup: Any, main: Any) -> None:
        hvd.GradAllReduce().transpile(startup, main)
        hvd.GradAllReduce().transpile(startup, main)

    refused(twice, "already")
    for nrings in (0, -1, 1000):
        refused(hvd.GradAllReduce(nrings).transpile, "nrings")
    refused(hvd.GradAllReduce(distributed=["no such"]).transpile, "no such", "linear_0.w_0")
    refused(lambda s, m: hvd.GradAllReduce().transpile(s, m, rank=7), "rank=7")
    refused(lambda s, m: hvd.GradAllReduce().transpile(s, m, endpoints="a:1,b:2,c:3"), "3 endpoints")
    refused(lambda s, m: hvd.GradAllReduce().transpile(s, m, None, "a:1,b:2", "c:3"), "c:3")
    with static(is_old) as (main, startup):
        paddle.static.data("x", [2], "float32")
        assert "no optimizer" in str(raised(lambda: hvd.GradAllReduce().transpile(startup, main)))
    with static(is_old) as (main, startup):
        width = 3 + hvd.rank()
        out = paddle.nn.Linear(2, width)(paddle.static.data("x", [None, 2], "float32"))
        if hvd.rank() == 1:
            out = paddle.tanh(out)
        paddle.optimizer.SGD(0.1).minimize(paddle.mean(out), startup)
        error = raised(lambda: hvd.GradAllReduce().transpile(startup, main))
        assert isinstance(error, MismatchError), error
        assert "rank 1" in str(error), error
        assert "tanh" in str(error), error


def without_collectives_for_inference(is_old: bool, folder: str) -> None:
    """What is saved for inference has no collective, and predicts what the parameters say."""
    with static(is_old) as (main, startup):
        x, y = (paddle.static.data(name, [None, width], "float32") for name, width in (("x", 6), ("y", 2)))
        out = Net()(x)
        loss = paddle.mean(paddle.square(paddle.subtract(out, y)))
        paddle.optimizer.SGD(0.1).minimize(loss, startup)
        roles = [op.attr("op_role") for op in main.global_block().ops] if is_old else []
        hvd.GradAllReduce(2, 1e-4).transpile(startup, main)
        ops = main.global_block().ops
        if is_old:
            assert [op.attr("op_role") for op in ops if programs.kind_of(op) is None] == roles
            assert {op.attr("op_role") for op in ops if programs.kind_of(op) is not None} == {1}
        assert "allreduce_start" in str(main)
    path = f"{folder}/model{hvd.rank()}"
    with running(main) as exe:
        exe.run(startup)
        paddle.static.save(main, f"{folder}/whole{hvd.rank()}")
        _drawn(f"{folder}/whole{hvd.rank()}")
        data = inputs(ROWS, 6)[0]
        exe.run(main, {"x": data, "y": np.zeros((ROWS, 2), np.float32)}, [loss])
        paddle.static.save_inference_model(path, [x], [out], exe, program=main)
        pruned, feeds, fetches = paddle.static.load_inference_model(path, exe)
        assert not programs.collectives_of(pruned)
        assert exe.run(pruned, {feeds[0]: data}, fetches)[0].shape == (ROWS, 2)


def _drawn(path: str) -> None:
    """A program that was saved is read, and shown with its two rings."""
    assert commands(["draw", path, "-o", f"{path}.svg"]) == 0
    picture = ElementTree.parse(f"{path}.svg").getroot()
    colours = {bar.get("fill") for bar in picture.iter("{http://www.w3.org/2000/svg}rect")}
    assert len(colours) == 3, colours
    with redirect_stdout(io.StringIO()) as said:
        assert commands(["draw", path]) == 0
    assert "sync_comm: " in said.getvalue()
    with redirect_stderr(io.StringIO()) as said:
        assert commands(["draw", f"{path}.nowhere"]) == 1
    assert "there is no program" in said.getvalue()


# --- dygraph


def _net(begins: list[Any]) -> Net:
    net = Net()
    for parameter, value in zip(net.parameters(), begins, strict=True):
        parameter.set_value(value)
    return net


def in_dygraph(kind: str, options: dict[str, Any], tolerance: float = 2e-6) -> None:
    net = _net(parameters())
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[kind](parameters=net.parameters()), **options)
    for x, y in zip(*_mine(), strict=True):
        ((net(paddle.to_tensor(x)) - paddle.to_tensor(y)) ** 2).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
    alone = _net(parameters())
    plain = OPTIMIZERS[kind](parameters=alone.parameters())
    for x, y in zip(*(each.reshape(N_STEPS, -1, each.shape[-1]) for each in batches()), strict=True):
        ((alone(paddle.to_tensor(x)) - paddle.to_tensor(y)) ** 2).mean().backward()
        plain.step()
        plain.clear_grad()
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        close(mine.numpy(), theirs.numpy(), tolerance)
    hvd.check_consistency(net.named_parameters())


def special_in_dygraph() -> None:
    """Accumulation without sync, parameters without a gradient on a rank, the scaler, and broadcasts."""
    rank, n = hvd.rank(), hvd.size()
    one, other = (paddle.nn.Linear(3, 1) for _ in range(2))
    both = [*one.parameters(), *other.parameters()]
    hvd.broadcast_parameters([(f"{index}", each) for index, each in enumerate(both)])
    optimizer = hvd.DistributedOptimizer(paddle.optimizer.SGD(0.1, parameters=both), bucket_mb=0)
    x = paddle.full([2, 3], rank + 1.0)
    with optimizer.no_sync():
        one(x).sum().backward()
    (one(x) if rank == 0 else one(x) + other(x)).sum().backward()
    optimizer.synchronize()
    mean = np.mean([each + 1 for each in range(n)])
    close(one.weight.grad.numpy(), np.full((3, 1), 4 * mean))
    close(other.weight.grad.numpy(), np.full((3, 1), 2 * (mean - 1 / n)))
    optimizer.step()
    optimizer.clear_grad()
    one(x).sum().backward()
    assert isinstance(raised(optimizer.clear_grad), AssertionError)
    optimizer.step()
    optimizer.clear_grad()
    one(x).sum().backward()
    paddle.nn.utils.clip_grad_norm_(both, 0.1)
    error = raised(optimizer.step)
    assert isinstance(error, AssertionError), error
    assert "changed or cleared between backward() and step()" in str(error)
    optimizer.clear_grad()

    # A scaler, which Paddle has for other devices only, asks for the parameters before it divides their gradients.
    one(x).sum().backward()
    gradients = [each.grad.numpy() for each in optimizer._parameter_list if each.grad is not None]
    close(gradients[0], np.full((3, 1), 2 * mean))
    optimizer.step()
    optimizer.clear_grad()
    hvd.check_consistency([(f"{index}", each) for index, each in enumerate(both)])
    error = raised(lambda: hvd.DistributedOptimizer(paddle.optimizer.SGD(0.1, parameters=both), nrings=0))
    assert isinstance(error, InvalidArgumentError), error


def settings_of_paddle() -> None:
    """Of which new tensors of ours must know nothing: static mode, and checks for NaN, which new memory may be."""
    x = paddle.full([30000], hvd.rank() + 1.0)
    total = sum(range(1, hvd.size() + 1))
    with static():
        error = raised(lambda: hvd.allreduce(x, op=hvd.Sum))
        assert isinstance(error, InvalidArgumentError), error
        assert "static mode" in str(error)
        hvd.check_consistency({"same on all ranks": hvd.broadcast_(x, 0)})
    x.fill_(hvd.rank() + 1.0)
    for call in (lambda: hvd.allreduce(x, op=hvd.Sum).sum() / total, lambda: hvd.allgather(x).sum() / total):
        memory = paddle.full([30000 * hvd.size()], float("nan")), paddle.full([30000], float("nan"))
        del memory
        paddle.set_flags({"FLAGS_check_nan_inf": True})
        try:
            assert float(call()) == 30000
        finally:
            paddle.set_flags({"FLAGS_check_nan_inf": False})


def many_runs(is_old: bool, n_runs: int) -> None:
    made = written(OPTIMIZERS["sgd"], is_old, hvd.GradAllReduce(2, 0).transpile)
    x, y = (each[:1].repeat(n_runs, 0) for each in _mine())
    trained(made, x, y, parameters())
    wait_until(lambda: _plugin.live_calls() == 0)
