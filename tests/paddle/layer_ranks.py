"""Layers whose parameters get their gradients in other ways than from one operator, in programs of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import paddle
from writing import close, raised, running, static

import ciranda.paddle as hvd
from ciranda.errors import InvalidArgumentError

N_STEPS = 2
nn, functional = paddle.nn, paddle.nn.functional
Value = Any


def _parameter(*shape: int) -> Value:
    return paddle.create_parameter(list(shape), "float32")


def _x() -> Value:
    return paddle.static.data("x", [4, 6], "float32")


def _sequence() -> Value:
    return paddle.reshape(_x(), [2, 2, 6])


def _twice(change: Callable[[Value], Value]) -> Callable[[], Value]:
    """Return a layer whose weight is used as it is, and changed."""

    def layer() -> Value:
        x, weight = _x(), _parameter(6, 2)
        return paddle.tanh(paddle.matmul(x, weight)) + paddle.matmul(x, change(weight))

    return layer


def _concat() -> Value:
    return paddle.matmul(_x(), paddle.concat([_parameter(6, 2), _parameter(6, 3)], 1))


def _stack() -> Value:
    return paddle.matmul(_x(), paddle.stack([_parameter(6), _parameter(6)], 1))


def _split() -> Value:
    x, weight = _x(), _parameter(6, 4)
    one, other = paddle.split(weight, 2, 1)
    _unused, third = paddle.split(weight * 0.5, 2, 1)
    return paddle.matmul(x, one) + paddle.matmul(x, other * third)


def _unbind() -> Value:
    x, (one, other) = _x(), paddle.unbind(_parameter(2, 6, 3), 0)
    return paddle.matmul(x, one) * paddle.matmul(x, other)


def _einsum() -> Value:
    return paddle.einsum("ij,jk,kl->il", _x(), _parameter(6, 3), _parameter(3, 2))


def _cond() -> Value:
    """Each rank goes its own way; one parameter is used outside as well."""
    x, one, other = _x(), _parameter(6, 3), _parameter(6, 3)
    found = paddle.static.nn.cond(
        x[0, 0] > 0, lambda: paddle.matmul(x, one), lambda: paddle.matmul(x, paddle.tanh(other))
    )
    return found + paddle.matmul(x, other)


def _loop() -> Value:
    weight = _parameter(6, 6)
    state = paddle.matmul(_x(), weight)
    state.stop_gradient = False
    number, end = (paddle.full([], each, "int64") for each in (0, 3))
    return paddle.static.nn.while_loop(
        lambda number, _: number < end,
        lambda number, state: (number + 1, paddle.tanh(paddle.matmul(state, weight))),
        [number, state],
    )[1]


def _penalized() -> Value:
    """The loss contains a gradient."""
    x, weight = _x(), _parameter(6, 3)
    x.stop_gradient = False
    out = paddle.sum(paddle.tanh(paddle.matmul(x, weight)))
    return paddle.square(paddle.static.gradients([out], [x])[0]) + 0.1 * out


def _tied() -> Value:
    """An embedding whose table is the last layer's weight as well, in bfloat16 where programs and the CPU have it."""
    table = _parameter(7, 6)
    rows = paddle.cast(_x()[:, 0] > 0, "int64") * 3
    has_bfloat16 = not _IS_OLD[0] and paddle.base.core.supports_bfloat16()
    with paddle.amp.auto_cast(dtype="bfloat16") if has_bfloat16 else nullcontext():
        return paddle.cast(paddle.matmul(functional.embedding(rows, table), table, transpose_y=True), "float32")


def _clipped_errors() -> Value:
    """Its gradient is written twice in the old IR: clipped in its place, in the backward pass."""
    weight = _parameter(6, 3)
    if _IS_OLD[0]:
        weight.error_clip = nn.clip.ErrorClipByValue(0.1)
    return paddle.matmul(_x(), weight)


#: Whether programs of the old IR are written, which have no auto_cast().
_IS_OLD = [False]

LAYERS: dict[str, Callable[[], Value]] = {
    "scaled": _twice(lambda weight: weight * 2.0),
    "negated": _twice(lambda weight: -weight),
    "flipped": _twice(lambda weight: paddle.flip(weight, [0])),
    "assigned": _twice(paddle.assign),
    "cast": _twice(lambda weight: paddle.cast(paddle.cast(weight, "float64"), "float32")),
    "sum": _twice(lambda weight: paddle.concat(paddle.split(weight + weight * 3.0, 2, 1), 1)),
    "norm": lambda: nn.utils.weight_norm(nn.Linear(6, 3))(_x()),
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "unbind": _unbind,
    "einsum": _einsum,
    "cond": _cond,
    "loop": _loop,
    "penalized": _penalized,
    "tied": _tied,
    "clipped": _clipped_errors,
    "lstm": lambda: nn.LSTM(6, 5)(_sequence())[0],
    "gru": lambda: nn.GRU(6, 5, direction="bidirect")(_sequence())[0],
    "cell": lambda: nn.RNN(nn.LSTMCell(6, 5))(_sequence())[0],
}


def _batches() -> list[list[dict[str, Any]]]:
    """Return what each rank trains with in each step."""
    rng = np.random.default_rng(11)
    return [[{"x": rng.normal(size=(4, 6)).astype("f")} for _ in range(hvd.size())] for _ in range(N_STEPS)]


def _written(
    layer: Callable[[], Value],
    is_old: bool,
    rewrite: Callable[..., None] = lambda *_: None,
    optimizer: Callable[[], Any] = lambda: paddle.optimizer.SGD(0.1),
) -> Any:
    _IS_OLD[0] = is_old
    with static(is_old) as (main, startup):
        optimizer().minimize(paddle.mean(paddle.square(layer())), startup)
        rewrite(startup, main)
        return main, startup, [each.name for each in main.global_block().all_parameters() if not each.stop_gradient]


def _trained(made: Any, batches: Sequence[dict[str, Any]], begins: list[Any] | None = None) -> list[Any]:
    """Return the parameters behind the batches; `begins` stands for what the startup program makes."""
    main, startup, names = made
    with running(main) as exe:
        exe.run(startup)
        tensors = [paddle.static.global_scope().find_var(name).get_tensor() for name in names]
        for tensor, value in zip(tensors, begins or [], strict=False):
            tensor.set(value, paddle.CPUPlace())
        for batch in batches:
            exe.run(main, dict(batch), [])
        return [np.array(tensor) for tensor in tensors]


def _averaged(made: Any) -> tuple[list[Any], list[Any]]:
    """Return the parameters of a plain program before and after steps that average those of each rank's batch."""
    main, startup, names = made
    with running(main) as exe:
        exe.run(startup)
        tensors = [paddle.static.global_scope().find_var(name).get_tensor() for name in names]
        begins = values = [np.array(tensor) for tensor in tensors]
        for step in _batches():
            everyones = []
            for batch in step:
                for tensor, value in zip(tensors, values, strict=True):
                    tensor.set(value, paddle.CPUPlace())
                exe.run(main, dict(batch), [])
                everyones.append([np.array(tensor) for tensor in tensors])
            values = [np.mean(each, axis=0) for each in zip(*everyones, strict=True)]
        return begins, values


def layers(is_old: bool) -> None:
    """Each is trained as by one process that averages what each rank's batch makes of the parameters."""
    for name in LAYERS:
        _as_averaged(name, is_old, hvd.GradAllReduce(2, 0))
    for name in ("sum", "cond", "lstm"):
        _as_averaged(name, is_old, hvd.LocalSGD(2, 1))


def _as_averaged(name: str, is_old: bool, transpiler: Any) -> None:
    paddle.seed(7)
    begins, wanted = _averaged(_written(LAYERS[name], is_old))
    made = _written(LAYERS[name], is_old, transpiler.transpile)
    found = _trained(made, [step[hvd.rank()] for step in _batches()], begins)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, 2e-5, 2e-6, err_msg=name)
    assert any(not np.array_equal(*both) for both in zip(found, begins, strict=True)), name
    _same_on_all_ranks(found, name)


def _same_on_all_ranks(found: list[Any], name: str) -> None:
    for theirs in hvd.allgather_object(found):
        assert all(np.array_equal(*both) for both in zip(found, theirs, strict=True)), name


def clipped_layers(is_old: bool) -> None:
    """Clipping and regularization see the average of a gradient that is a sum: as where Paddle names the gradients."""

    def optimizer() -> Any:
        clip, decay = nn.ClipGradByGlobalNorm(0.1), paddle.regularizer.L2Decay(0.1)
        return paddle.optimizer.Momentum(0.1, 0.9, grad_clip=clip, weight_decay=decay)

    for name in ("sum", "split", "lstm"):
        mine = [step[hvd.rank()] for step in _batches()]
        found = [
            _trained(_written(LAYERS[name], is_old, rewrite, each), mine)
            for rewrite, each in (
                (hvd.GradAllReduce(2, 0).transpile, optimizer),
                (lambda *_: None, lambda: hvd.DistributedOptimizer(optimizer(), bucket_mb=0)),
            )
            if paddle.seed(3)
        ]
        for one, other in zip(*found, strict=True):
            close(one, other, 2e-6)
        _same_on_all_ranks(found[0], name)


def gradients_that_are_not_combined(is_old: bool) -> None:
    """A program is refused if a gradient would reach the optimizer without those of other ranks."""

    def refused(minimize: Callable[[Value, Any], None], *parts: str) -> None:
        with static(is_old) as (main, startup):
            minimize(_twice(paddle.tanh)(), startup)
            error = raised(lambda: hvd.GradAllReduce().transpile(startup, main))
        assert isinstance(error, InvalidArgumentError), error
        assert all(part in str(error) for part in ("gradient of create_parameter_", "DistributedOptimizer", *parts)), (
            error
        )

    def twice(out: Value, startup: Any) -> None:
        for loss in (paddle.mean(out), paddle.mean(paddle.square(out))):
            paddle.optimizer.SGD(0.1).minimize(loss, startup)

    def of_signs(out: Value, _: Any) -> None:
        optimizer = paddle.optimizer.SGD(0.1)
        ((weight, one),) = optimizer.backward(paddle.mean(out))
        ((_, other),) = optimizer.backward(paddle.mean(paddle.square(out)))
        optimizer.apply_gradients([(weight, paddle.sign(one) + paddle.sign(other))])

    refused(twice, "without those of other ranks")
    if not is_old:  # whose programs say which gradients the backward pass has made
        refused(of_signs, "only a part of it")


def shared_gradient(is_old: bool) -> None:
    """Two parameters with the same gradient are both trained with the average, unless one is each rank's own."""

    def written(own: Sequence[int] = ()) -> Any:
        with static(is_old) as (main, startup):
            weights = [_parameter(6, 2) for _ in range(2)]
            optimizer = paddle.optimizer.SGD(0.1)
            ((_, gradient), _) = optimizer.backward(paddle.sum(paddle.matmul(_x(), weights[0] + weights[1])))
            optimizer.apply_gradients([(weight, gradient) for weight in weights])
            names = [each.name for each in weights]
            hvd.GradAllReduce(distributed=[names[index] for index in own]).transpile(startup, main)
            return main, startup, names

    batch = _batches()[0]
    zeros = [np.zeros((6, 2), np.float32)] * 2
    wanted = [-0.1 * np.mean([each["x"].sum(0) for each in batch], axis=0)[:, None].repeat(2, 1)] * 2
    if not is_old:  # where a gradient is known by its parameter's name
        close(_trained(written(), [batch[hvd.rank()]], zeros), wanted)
        error = raised(lambda: written([1]))
        assert "have the same gradient" in str(error), error


def saved_rnn(is_old: bool, folder: str) -> None:
    """What is saved of an RNN is what it was trained to: its weights share memory in programs of the old IR."""
    for make in (hvd.GradAllReduce, lambda: hvd.LocalSGD(k_steps=2)):
        paddle.seed(20 + hvd.rank())
        main, startup, _ = _written(LAYERS["lstm"], is_old, make().transpile)
        path = f"{folder}/rnn.{hvd.rank()}"
        with static(is_old) as (inference, its_startup):
            out = paddle.mean(LAYERS["lstm"]())
        batches = _batches()
        with running(main) as exe:
            exe.run(startup)
            for step in batches:
                exe.run(main, dict(step[hvd.rank()]), [])
            (wanted,) = exe.run(inference, dict(batches[0][0]), [out])
            paddle.static.save(main, path)
        with running(inference) as exe:
            exe.run(its_startup)
            paddle.static.load(inference, path, exe)
            (found,) = exe.run(inference, dict(batches[0][0]), [out])
        close(found, wanted, 1e-7)
