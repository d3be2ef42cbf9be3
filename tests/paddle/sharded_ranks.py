"""Layers whose classes are divided over ranks, held against a dense layer in NumPy, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import numpy as np
import paddle
from operator_ranks import hvd_errors_expected
from writing import HAS_PIR, close, raised, running, static

import ciranda.paddle as hvd
from ciranda._frameworks import sampling
from ciranda._frameworks.shards import Shards
from ciranda.errors import InvalidArgumentError
from ciranda.paddle import operators
from ciranda.paddle.nn import ShardedLinear, pieces, sharded_softmax_cross_entropy

FEATURES = 5
NORMAL = {"normalize": True}
COMBINED = {"m1": 1.1, "m2": 0.3, "m3": 0.2, "scale": 8.0}


@dataclass(frozen=True)
class Case:
    """What is trained, and the batches of up to four ranks."""

    n_classes: int = 11
    sizes: tuple[int, ...] = (3, 3, 3, 3)
    layer: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float64"
    label_dtype: str = "int64"
    tolerance: float = 1e-10
    piece: int = 1 << 22
    #: What inputs are cast to before they come to the layer.
    half: str | None = None

    def cast(self, inputs: Any) -> Any:
        return inputs if self.half is None else paddle.cast(inputs, self.half)

    def batches(self) -> list[tuple[Any, Any]]:
        rng = np.random.default_rng(7)
        sizes = self.sizes[: hvd.size()]
        inputs = [rng.normal(size=(size, FEATURES)).astype(self.dtype) for size in sizes]
        labels = [rng.integers(0, self.n_classes, size).astype(self.label_dtype) for size in sizes]
        return list(zip(inputs, labels, strict=True))

    def dense(self) -> tuple[Any, Any]:
        rng = np.random.default_rng(8)
        weight, bias = rng.normal(size=(self.n_classes, FEATURES)), rng.normal(size=self.n_classes)
        return weight.astype(self.dtype), bias.astype(self.dtype) if self.layer.get("bias") else None


CASES = {
    "plain": Case(),
    "bias, uneven": Case(sizes=(4, 1, 2, 3), layer={"bias": True}),
    "an empty batch": Case(sizes=(2, 0, 3, 1), piece=10, loss={"reduction": "global_mean"}),
    "fewer classes than ranks": Case(n_classes=2, layer={"bias": True}),
    "one class": Case(n_classes=1),
    "one class, normalized": Case(n_classes=1, layer=NORMAL, loss=COMBINED),
    "arcface": Case(layer=NORMAL, loss={"m2": 0.5, "scale": 16.0}),
    "combined margins": Case(sizes=(2, 3, 1, 4), piece=14, layer=NORMAL, loss=COMBINED),
    "cosface, float32": Case(layer=NORMAL, loss={"m3": 0.35, "scale": 8.0}, dtype="float32", tolerance=1e-6),
    "float32, int32 labels": Case(dtype="float32", label_dtype="int32", tolerance=1e-6),
    "bias, in pieces": Case(layer={"bias": True}, piece=12),
    "huge logits": Case(loss={"scale": 1e4}),
    "float16": Case(dtype="float32", half="float16", tolerance=5e-3),
    "bfloat16, normalized": Case(dtype="float32", half="bfloat16", layer=NORMAL, tolerance=2e-2),
    "sum": Case(loss={"reduction": "sum"}),
}
SAMPLED = Case(n_classes=40, layer={"sample_rate": 0.4, "seed": 5}, piece=20)


# --- one process, by NumPy


def _normalized(rows: Any) -> tuple[Any, Any]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths, lengths


def _through_length(gradient: Any, rows: Any, lengths: Any) -> Any:
    return (gradient - rows * (rows * gradient).sum(1, keepdims=True)) / lengths


def expected(case: Case) -> list[Any]:
    """Return the objective, and its gradients: of the weight, of all ranks' inputs, of the bias."""
    batches = case.batches()
    inputs = np.concatenate([each for each, _ in batches]).astype(np.float64)
    labels = np.concatenate([each for _, each in batches]).astype(np.int64)
    weight, bias = (None if each is None else each.astype(np.float64) for each in case.dense())
    margins = {"m1": 1.0, "m2": 0.0, "m3": 0.0, "scale": 1.0, **case.loss}
    rows, columns = np.arange(len(labels)), labels
    x, w, x_lengths, w_lengths = inputs, weight, None, None
    if case.layer.get("normalize"):
        (x, x_lengths), (w, w_lengths) = _normalized(inputs), _normalized(weight)
    products = x @ w.T + (0 if bias is None else bias)
    slope = np.ones_like(products)
    logits = products.copy()
    if (margins["m1"], margins["m2"], margins["m3"]) != (1.0, 0.0, 0.0):
        angle = np.arccos(products[rows, columns])
        logits[rows, columns] = np.cos(margins["m1"] * angle + margins["m2"]) - margins["m3"]
        slope[rows, columns] = margins["m1"] * np.sin(margins["m1"] * angle + margins["m2"]) / np.sin(angle)
    logits, slope = logits * margins["scale"], slope * margins["scale"]
    if case.layer.get("sample_rate", 1) < 1:
        left_out = np.setdiff1d(np.arange(case.n_classes), _sampled(case, labels))
        logits[:, left_out] = -np.inf
    most = logits.max(1, keepdims=True)
    shares = np.exp(logits - most)
    totals = shares.sum(1, keepdims=True)
    losses = (np.log(totals) + most)[:, 0] - logits[rows, columns]
    factors = _factors(case, [len(each) for _, each in batches])
    by_logit = shares / totals
    by_logit[rows, columns] -= 1
    by_product = by_logit * slope * factors[:, None]
    of_w, of_x = by_product.T @ x, by_product @ w
    if case.layer.get("normalize"):
        of_w, of_x = _through_length(of_w, w, w_lengths), _through_length(of_x, x, x_lengths)
    return [np.array([(losses * factors).sum()]), of_w, of_x, *([] if bias is None else [by_product.sum(0)])]


def _factors(case: Case, sizes: list[int]) -> Any:
    """What each sample's loss counts in the mean of the ranks' losses."""
    n = len(sizes)
    of_rank = {
        "mean": [1 / max(size, 1) / n for size in sizes],
        "global_mean": [1 / max(sum(sizes), 1)] * n,
        "sum": [1 / n] * n,
    }[case.loss.get("reduction", "mean")]
    return np.concatenate([np.full(size, factor) for size, factor in zip(sizes, of_rank, strict=True)])


def _sampled(case: Case, labels: Any) -> Any:
    shards = Shards(case.n_classes, hvd.size())
    found = []
    for shard in range(hvd.size()):
        first, end = shards.bounds(shard)
        _, places = shards.targets(labels, shard)
        found.append(first + sampling.sample(end - first, places, case.layer["sample_rate"], 5, 0, shard))
    return np.concatenate(found)


# --- ranks


def _compare(case: Case, name: str, loss: float, layer: ShardedLinear, gradients: list[Any]) -> None:
    """`gradients`: of this rank's inputs, weight and bias."""
    of_input, *of_parameters = gradients
    # Paddle's operators keep what is added to angles in single precision.
    tolerance = max(case.tolerance, 1e-6) if "m2" in case.loss else case.tolerance
    total = np.mean(hvd.allgather_object(loss))
    parts = hvd.allgather_object([of_parameters[0][: layer.n_rows], of_input / hvd.size(), *of_parameters[1:]])
    whole = [np.concatenate(each) for each in zip(*parts, strict=True)]
    if len(whole) == 3:
        whole[2] = np.concatenate([each[2][: each[0].shape[0]] for each in parts])
    wanted = expected(case)
    for place, (found, other) in enumerate(zip([np.array([total]), *whole], wanted, strict=True)):
        assert found.shape == other.shape, (name, place, found.shape, other.shape)
        most = max(float(np.abs(other).max(initial=0.0)), 1e-3)
        worst = float(np.abs(found - other).max(initial=0.0))
        assert worst <= tolerance * most, (name, place, worst, most)


def _layer(case: Case) -> ShardedLinear:
    return ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)


def like_dense_in_dygraph(name: str, case: Case) -> None:
    pieces._PIECE = case.piece
    layer = _layer(case)
    layer.load_dense(*case.dense())
    inputs, labels = case.batches()[hvd.rank()]
    leaf = paddle.to_tensor(inputs, stop_gradient=False)
    loss = sharded_softmax_cross_entropy(case.cast(leaf), paddle.to_tensor(labels), layer, **case.loss)
    loss.backward()
    # The oldest Paddle has no gradient of a tensor without elements.
    of_inputs = np.zeros_like(inputs) if leaf.grad is None and not len(inputs) else leaf.grad.numpy()
    _compare(case, name, float(loss), layer, [of_inputs, *(each.grad.numpy() for each in layer.parameters())])


def like_dense_in_program(name: str, case: Case, is_old: bool) -> None:
    with static(is_old) as (main, startup):
        features = paddle.static.data("features", [None, FEATURES], case.dtype)
        features.stop_gradient = False
        labels = paddle.static.data("labels", [None], case.label_dtype)
        layer = _layer(case)
        loss = sharded_softmax_cross_entropy(case.cast(features), labels, layer, **case.loss)
        gradients = paddle.static.gradients([loss], [features, *layer.parameters()])
    inputs, mine = case.batches()[hvd.rank()]
    with running(main) as exe:
        exe.run(startup)
        layer.load_dense(*case.dense())
        loss_now, *found = exe.run(main, {"features": inputs, "labels": mine}, [loss, *gradients])
    _compare(case, name, float(np.asarray(loss_now)), layer, found)


def all_cases(form: str) -> None:
    for name, case in CASES.items():
        if form == "dygraph":
            like_dense_in_dygraph(name, case)
        elif HAS_PIR or min(case.sizes):  # the programs of the oldest Paddle fail without samples
            like_dense_in_program(name, case, form == "old")
    if form == "dygraph":
        like_dense_in_dygraph("sampled", SAMPLED)
    else:
        like_dense_in_program("sampled", SAMPLED, form == "old")


# --- training beside data-parallel parameters

STEPS = 20


def _begins() -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(FEATURES, FEATURES)), rng.normal(size=FEATURES)]


def _batch(step: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(step)
    return [(rng.normal(size=(4, FEATURES)), rng.integers(0, 7, 4)) for _ in range(hvd.size())]


def _trained_alone() -> list[Any]:
    """In one process, by plain operations: SGD with momentum of a linear layer and a dense one."""
    body, head = paddle.nn.Linear(FEATURES, FEATURES), paddle.nn.Linear(FEATURES, 7, bias_attr=False)
    body.weight.set_value(_begins()[0])
    body.bias.set_value(_begins()[1])
    head.weight.set_value(Case(n_classes=7).dense()[0].T)
    both = [*body.parameters(), *head.parameters()]
    optimizer = paddle.optimizer.Momentum(0.1, 0.9, parameters=both)
    for step in range(STEPS):
        inputs, labels = (np.concatenate(each) for each in zip(*_batch(step), strict=True))
        logits = head(paddle.tanh(body(paddle.to_tensor(inputs))))
        paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(labels)).backward()
        optimizer.step()
        optimizer.clear_grad()
    return [body.weight.numpy(), body.bias.numpy(), head.weight.numpy().T]


def _as_trained_alone(found: list[Any]) -> None:
    for mine, wanted in zip(found, _trained_alone(), strict=True):
        close(mine, wanted, 1e-8)


def trained_in_dygraph() -> None:
    """DistributedOptimizer averages the gradients of the body, and leaves alone the head's, which it finds itself."""
    paddle.set_default_dtype("float64")
    try:
        body, head = paddle.nn.Linear(FEATURES, FEATURES), ShardedLinear(FEATURES, 7)
        body.weight.set_value(_begins()[0])
        body.bias.set_value(_begins()[1])
        head.load_dense(Case(n_classes=7).dense()[0])
        both = [*body.parameters(), *head.parameters()]
        optimizer = hvd.DistributedOptimizer(paddle.optimizer.Momentum(0.1, 0.9, parameters=both), bucket_mb=0)
        for step in range(STEPS):
            inputs, labels = (paddle.to_tensor(each) for each in _batch(step)[hvd.rank()])
            sharded_softmax_cross_entropy(paddle.tanh(body(inputs)), labels, head).backward()
            optimizer.step()
            optimizer.clear_grad()
        _as_trained_alone([body.weight.numpy(), body.bias.numpy(), head.to_dense()[0]])
    finally:
        paddle.set_default_dtype("float32")


def trained_in_program(is_old: bool, is_wrapped: bool) -> None:
    """The same by a program that is rewritten, or by an optimizer that is wrapped."""
    paddle.set_default_dtype("float64")
    try:
        with static(is_old) as (main, startup):
            inputs = paddle.static.data("inputs", [None, FEATURES], "float64")
            labels = paddle.static.data("labels", [None], "int64")
            body, head = paddle.nn.Linear(FEATURES, FEATURES), ShardedLinear(FEATURES, 7)
            loss = sharded_softmax_cross_entropy(paddle.tanh(body(inputs)), labels, head)
            optimizer = paddle.optimizer.Momentum(0.1, 0.9)
            if is_wrapped:
                hvd.DistributedOptimizer(optimizer).minimize(loss, startup)
            else:
                optimizer.minimize(loss, startup)
                transpiler = hvd.GradAllReduce()
                transpiler.transpile(startup, main)
                assert transpiler.plan is not None
                assert transpiler.plan.local == (head.weight.name,)
        with running(main) as exe:
            exe.run(startup)
            scope = paddle.static.global_scope()
            tensors = [scope.find_var(each.name).get_tensor() for each in (body.weight, body.bias)]
            for tensor, value in zip(tensors, _begins(), strict=True):
                tensor.set(value, paddle.CPUPlace())
            head.load_dense(Case(n_classes=7).dense()[0])
            for step in range(STEPS):
                given = dict(zip(("inputs", "labels"), _batch(step)[hvd.rank()], strict=True))
                exe.run(main, given, [loss])
            found = [*(np.array(tensor) for tensor in tensors), head.to_dense()[0]]
        _as_trained_alone(found)
    finally:
        paddle.set_default_dtype("float32")


# --- what else


def layers_of_their_own() -> None:
    """Ranks with the same seed have other values; half precision, logits, and a rank that wants no gradient."""
    paddle.seed(1)
    layer = ShardedLinear(FEATURES, 7, bias=True)
    weight, bias = layer.to_dense()
    assert weight.shape == (7, FEATURES)
    assert bias.shape == (7,)
    assert len({tuple(row) for row in weight.tolist()}) == 7
    assert all(each.is_distributed and each.need_clip is False for each in layer.parameters())

    case = Case(dtype="float32")
    inputs, labels = case.batches()[hvd.rank()]
    dense = ShardedLinear(FEATURES, case.n_classes)
    leaf = paddle.to_tensor(inputs, stop_gradient=hvd.rank() != 0)
    loss = sharded_softmax_cross_entropy(leaf, paddle.to_tensor(labels), dense)
    loss.backward()
    assert (leaf.grad is not None) == (hvd.rank() == 0)
    half = paddle.to_tensor(inputs).astype("bfloat16")
    half.stop_gradient = False
    in_half = sharded_softmax_cross_entropy(half, paddle.to_tensor(labels), dense)
    in_half.backward()
    assert half.grad.dtype == paddle.bfloat16
    assert in_half.dtype == paddle.float32
    close(float(in_half), float(loss), 2e-2)
    none = sharded_softmax_cross_entropy(leaf, paddle.to_tensor(labels), dense, reduction="none")
    close(none.numpy().mean(), float(loss))
    logits = dense(leaf)
    everyones = np.concatenate([each for each, _ in case.batches()])
    close(logits.numpy(), (everyones @ dense.to_dense()[0].T)[:, dense.first : dense.end])
    dense.eval()
    with paddle.no_grad():
        close(float(sharded_softmax_cross_entropy(leaf, paddle.to_tensor(labels), dense)), float(loss))


def told_to_all(form: str) -> None:
    """What one rank gives wrong is said on all, with the rank at fault."""
    bad = {
        "rank 1 gives label 6 for its sample 1, but the layer's classes are 0 to 5": [0, 6],
        "rank 1 gives label -1 for its sample 0": [-1, 0],
        "rank 1 gives 1 labels for 2 samples": [0],
    }
    features = np.zeros((2, FEATURES), np.float32)
    if form == "dygraph":
        layer = ShardedLinear(FEATURES, 6)

        def attempt(labels: Any) -> Any:
            given = paddle.to_tensor(np.array(labels))
            return sharded_softmax_cross_entropy(paddle.to_tensor(features), given, layer)
    else:
        with static(form == "old") as (main, startup):
            inputs = paddle.static.data("features", [None, FEATURES], "float32")
            given = paddle.static.data("labels", [None], "int64")
            loss = sharded_softmax_cross_entropy(inputs, given, ShardedLinear(FEATURES, 6))

        def attempt(labels: Any) -> Any:
            with running(main) as exe, hvd.ciranda_errors():
                exe.run(startup)
                return exe.run(main, {"features": features, "labels": np.array(labels)}, [loss])

    for text, labels in bad.items():
        error = raised(lambda labels=labels: attempt(labels if hvd.rank() == 1 else [0, 5]))
        assert isinstance(error, InvalidArgumentError), error
        assert text in str(error), error
    if form == "dygraph":
        wrong = paddle.zeros([2, FEATURES - 1])
        error = raised(
            lambda: sharded_softmax_cross_entropy(
                wrong if hvd.rank() == 1 else paddle.to_tensor(features), paddle.to_tensor([0, 1]), layer
            )
        )
        assert "rank 1 gives a sharded layer features that are not a table" in str(error), error


def written_for_others(is_old: bool) -> None:
    """A program that was written for three ranks says so on two."""
    with static(is_old) as (main, _):
        labels = paddle.static.data("labels", [None], "int64")
        found = operators.shard_labels(labels, paddle.full([2], 2, "int64"), 0, 2, 6, 3)
    with running(main) as exe, hvd_errors_expected(InvalidArgumentError, "2 ranks", "made for 3"):
        exe.run(main, {"labels": np.array([0, 5])}, found)


def refused() -> None:
    plain, elsewhere = (ShardedLinear(FEATURES, 6) for _ in range(2))
    batch = paddle.zeros([1, FEATURES]), paddle.to_tensor([0])
    del elsewhere.weight
    elsewhere.weight = Mock(place=Mock(is_cpu_place=lambda: False))  # stands for a weight on a GPU
    for attempt, text in (
        (lambda: ShardedLinear(FEATURES, 0), "number of classes"),
        (lambda: ShardedLinear(FEATURES, 6, bias=True, normalize=True), "no bias"),
        (lambda: ShardedLinear(FEATURES, 6, sample_rate=0.0), "got 0.0"),
        (lambda: sharded_softmax_cross_entropy(*batch, plain, m2=0.5), "normalize=True"),
        (lambda: sharded_softmax_cross_entropy(*batch, plain, reduction="average"), "'average'"),
        (lambda: sharded_softmax_cross_entropy(*batch, elsewhere), "must stay in CPU memory"),
        (lambda: plain.load_dense(np.zeros((5, FEATURES))), "takes a weight of shape (6, 5)"),
    ):
        error = raised(attempt)
        assert isinstance(error, InvalidArgumentError), error
        assert text in str(error), error
