"""ShardedLinear and its loss on n ranks must be a dense layer and the softmax cross entropy in one process."""

from __future__ import annotations

import copy
import io
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

import ciranda.torch as hvd
from ciranda._frameworks import sampling
from ciranda._frameworks.shards import Shards
from ciranda.torch.nn import ShardedLinear, sharded_loss, sharded_softmax_cross_entropy
from ciranda.torch.own_gradients import share_overflow

pytestmark = pytest.mark.multiprocess

FEATURES = 5


@dataclass(frozen=True)
class Case:
    """What is trained, and the batches of up to four ranks."""

    n_classes: int = 11
    sizes: tuple[int, ...] = (3, 3, 3, 3)
    layer: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64
    label_dtype: torch.dtype = torch.int64
    piece: int = 1 << 22
    tolerance: float = 1e-12

    def batches(self, n_ranks: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(7)
        sizes = list(self.sizes[:n_ranks])
        inputs = torch.randn(sum(sizes), FEATURES, generator=generator, dtype=torch.float64).to(self.dtype)
        labels = torch.randint(self.n_classes, (sum(sizes),), generator=generator).to(self.label_dtype)
        return list(zip(inputs.split(sizes), labels.split(sizes), strict=True))

    def dense(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        generator = torch.Generator().manual_seed(8)
        weight = torch.randn(self.n_classes, FEATURES, generator=generator, dtype=torch.float64)
        bias = torch.randn(self.n_classes, generator=generator, dtype=torch.float64)
        return weight.to(self.dtype), bias.to(self.dtype) if self.layer.get("bias") else None


ARCFACE = {"m1": 1.0, "m2": 0.5, "m3": 0.0, "scale": 16.0}
COMBINED = {"m1": 1.1, "m2": 0.3, "m3": 0.2, "scale": 8.0}
NORMAL = {"normalize": True}
CASES = {
    "plain": Case(),
    "bias, uneven": Case(sizes=(4, 1, 2, 3), layer={"bias": True}),
    "an empty batch, in pieces": Case(sizes=(2, 0, 3, 1), piece=10, loss={"reduction": "global_mean"}),
    "all batches empty": Case(sizes=(0, 0, 0, 0), loss={"reduction": "global_mean"}),
    "fewer classes than ranks": Case(n_classes=2, layer={"bias": True}, piece=1),
    "one class": Case(n_classes=1),
    "arcface": Case(layer=NORMAL, loss=ARCFACE, tolerance=1e-10),
    "combined margins, in pieces": Case(sizes=(2, 3, 1, 4), layer=NORMAL, loss=COMBINED, piece=14, tolerance=1e-10),
    "cosface, float32": Case(layer=NORMAL, loss={"m3": 0.35, "scale": 8.0}, dtype=torch.float32, tolerance=1e-6),
    "float32, int32 labels": Case(dtype=torch.float32, label_dtype=torch.int32, tolerance=1e-6),
    "float16": Case(dtype=torch.float16, tolerance=2e-3),
    "bfloat16, normalized": Case(dtype=torch.bfloat16, layer=NORMAL, tolerance=1.5e-2),
    "sampled": Case(n_classes=40, layer={"sample_rate": 0.4, "seed": 5}),
    "sampled, sparse, in pieces": Case(n_classes=40, layer={"sample_rate": 0.3, "sparse": True, **NORMAL}, piece=20),
    "none, huge logits": Case(loss={"reduction": "none", "scale": 1e4}),
    "sum": Case(loss={"reduction": "sum"}),
}


def _objective(case: Case, n_ranks: int, inputs: list[torch.Tensor], weight: Any, bias: Any, step: int) -> torch.Tensor:
    """What the ranks train, in one process: the mean of their losses, by plain operations, in float64."""
    labels = [labels.long() for _, labels in case.batches(n_ranks)]
    logits = torch.cat(inputs).double()
    margins = {"m1": 1.0, "m2": 0.0, "m3": 0.0, "scale": 1.0, **case.loss}
    wide = weight.double()
    if case.layer.get("normalize"):
        logits, wide = functional.normalize(logits), functional.normalize(wide)
    logits = logits @ wide.T
    if bias is not None:
        logits = logits + bias.double()
    targets = torch.cat(labels)
    if (margins["m1"], margins["m2"], margins["m3"]) != (1.0, 0.0, 0.0):
        own = torch.cos(margins["m1"] * torch.acos(logits) + margins["m2"]) - margins["m3"]
        logits = torch.where(functional.one_hot(targets, case.n_classes) > 0, own, logits)
    logits = logits * margins["scale"]
    rate = case.layer.get("sample_rate", 1.0)
    if rate < 1:
        chosen = _sampled(case, n_ranks, targets, step)
        left_out = torch.ones(case.n_classes, dtype=torch.bool)
        left_out[chosen] = False
        logits = logits.masked_fill(left_out, -math.inf)
    losses = functional.cross_entropy(logits, targets, reduction="none").split([len(each) for each in labels])
    reduction = case.loss.get("reduction", "mean")
    n_samples = max(len(targets), 1)
    by_rank = {
        "mean": lambda each: each.sum() / max(len(each), 1),
        "global_mean": lambda each: each.sum() * n_ranks / n_samples,
        "sum": torch.sum,
        "none": lambda each: (each * _factors(each)).sum(),
    }[reduction]
    return torch.stack([by_rank(each) for each in losses]).mean()


def _factors(losses: torch.Tensor) -> torch.Tensor:
    return torch.arange(1.0, 1.0 + len(losses), dtype=losses.dtype)


def _sampled(case: Case, n_ranks: int, targets: torch.Tensor, step: int) -> torch.Tensor:
    shards = Shards(case.n_classes, n_ranks)
    found = []
    for shard in range(n_ranks):
        first, end = shards.bounds(shard)
        _, places = shards.targets(targets.numpy(), shard)
        rate, seed = case.layer["sample_rate"], case.layer.get("seed", 0)
        found.append(torch.from_numpy(sampling.sample(end - first, places, rate, seed, step, shard)) + first)
    return torch.cat(found)


def _expected(case: Case, n_ranks: int) -> list[torch.Tensor]:
    inputs = [inputs.double().requires_grad_() for inputs, _ in case.batches(n_ranks)]
    weight, bias = (None if each is None else each.double().requires_grad_() for each in case.dense())
    loss = _objective(case, n_ranks, inputs, weight, bias, step=0)
    gradients = torch.autograd.grad(loss, [weight, *inputs, *([] if bias is None else [bias])])
    of_inputs = torch.cat(gradients[1 : 1 + n_ranks])
    return [loss.detach(), gradients[0], of_inputs, *gradients[1 + n_ranks :]]


def _on_a_rank(case: Case) -> list[torch.Tensor]:
    """Loss, and the gradients of the whole weight, of all inputs, of the whole bias."""
    sharded_loss._PIECE = case.piece
    n, rank = hvd.size(), hvd.rank()
    layer = ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)
    layer.load_dense(*case.dense())
    inputs, labels = case.batches(n)[rank]
    leaf = inputs.clone().requires_grad_()
    losses = sharded_softmax_cross_entropy(leaf, labels, layer, **case.loss)
    assert losses.dtype == (torch.float64 if case.dtype == torch.float64 else torch.float32)
    loss = (losses * _factors(losses)).sum() if losses.ndim else losses
    loss.backward()
    gradients = [each.grad for each in layer.parameters()]
    assert gradients[0].is_sparse is bool(case.layer.get("sparse"))
    parts = [gradients[0].to_dense(), leaf.grad / n, *gradients[1:]]
    assert all(part.dtype == case.dtype for part in parts)
    return [hvd.allreduce(loss.detach().double()), *(hvd.allgather(part.contiguous()).double() for part in parts)]


def _compare(found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float, name: str) -> None:
    assert len(found) == len(expected)
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.shape == other.shape
        most = float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * max(most, 1e-3), msg=f"{name}: {place}")


@pytest.mark.parametrize("n_ranks", [1, 3, 4])
def test_like_a_dense_layer(worlds: Any, n_ranks: int) -> None:
    """Loss and all gradients: in float64 to 1e-10, in float32 to 1e-6, of the greatest."""
    results = worlds.of(n_ranks).run(lambda: [_on_a_rank(case) for case in CASES.values()])
    for number, (name, case) in enumerate(CASES.items()):
        expected = _expected(case, n_ranks)
        for result in results:
            _compare(result[number], expected, case.tolerance, name)


# --- the gradient convention ---


def _changes_of_objective() -> list[tuple[float, float]]:
    """By gradient and by difference: what each element of each rank's features and weights does to the mean loss."""
    case = Case(n_classes=4, sizes=(2, 1), layer={"bias": False, **NORMAL}, loss=COMBINED)
    n, rank = hvd.size(), hvd.rank()
    layer = ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)
    layer.load_dense(*case.dense())
    inputs, labels = case.batches(n)[rank]
    leaf = inputs.clone().requires_grad_()

    def objective() -> torch.Tensor:
        return sharded_softmax_cross_entropy(leaf, labels, layer, **case.loss)

    objective().backward()
    pairs = []
    for owner in range(n):
        for tensor, factor in ((leaf, 1 / n), (layer.weight, 1.0)):
            for place in range(hvd.broadcast(torch.tensor(tensor.numel()), owner).item()):
                sides = []
                for change in (1e-6, -1e-6):
                    if rank == owner:
                        tensor.data.view(-1)[place] += change
                    with torch.no_grad():
                        sides.append(float(hvd.allreduce(objective())))
                    if rank == owner:
                        tensor.data.view(-1)[place] -= change
                if rank == owner:
                    pairs.append((float(tensor.grad.view(-1)[place]) * factor, (sides[0] - sides[1]) / 2e-6))
    return pairs


def test_gradients_are_those_of_the_mean_loss(worlds: Any) -> None:
    """By differences, element by element, over the ranks. A rank's features have n times the gradient."""
    for pairs in worlds.of(2).run(_changes_of_objective):
        assert len(pairs) >= 15
        for by_gradient, by_difference in pairs:
            assert abs(by_gradient - by_difference) < 1e-7


def _gradcheck() -> bool:
    case = Case(n_classes=4, sizes=(3,), layer=NORMAL, loss=COMBINED)
    layer = ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)
    inputs, labels = case.batches(1)[0]

    def loss(features: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return sharded_softmax_cross_entropy(features, labels, layer, reduction="none", **case.loss)

    return torch.autograd.gradcheck(loss, (inputs.requires_grad_(), layer.weight))


def test_gradcheck(worlds: Any) -> None:
    assert worlds.of(1).run(_gradcheck) == [True]


STEPS = 50


def _backbone(case: Case) -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, FEATURES)).double()


def _train(case: Case) -> list[torch.Tensor]:
    n, rank = hvd.size(), hvd.rank()
    layer = ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)
    layer.load_dense(*case.dense())
    model = torch.nn.ModuleDict({"backbone": _backbone(case), "head": layer})
    hvd.broadcast_parameters(model.state_dict(), 0)
    inner = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    inputs, labels = case.batches(n)[rank]
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = sharded_softmax_cross_entropy(model["backbone"](inputs), labels, layer, **case.loss)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()))
    hvd.broadcast_optimizer_state(optimizer, 0)
    return [torch.stack(losses), layer.to_dense()[0], *(each.detach() for each in model["backbone"].parameters())]


def _train_densely(case: Case, n_ranks: int) -> list[torch.Tensor]:
    backbone = _backbone(case)
    weight = case.dense()[0].requires_grad_()
    optimizer = torch.optim.SGD([*backbone.parameters(), weight], lr=0.2, momentum=0.9, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        features = [backbone(inputs) for inputs, _ in case.batches(n_ranks)]
        loss = _objective(case, n_ranks, features, weight, None, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), weight.detach(), *(each.detach() for each in backbone.parameters())]


TRAINED = {
    "mean": Case(sizes=(3, 1)),
    "sampled": Case(n_classes=30, sizes=(2, 3), layer={"sample_rate": 0.4, **NORMAL}, loss=COMBINED),
    "an empty batch": Case(sizes=(3, 0), loss={"reduction": "global_mean"}),
}


def test_training_beside_data_parallel_parameters(worlds: Any) -> None:
    """50 steps of SGD with momentum, of layers whose gradients DistributedOptimizer averages, and a sharded one."""
    results = worlds.of(2).run(lambda: [_train(case) for case in TRAINED.values()])
    for number, (name, case) in enumerate(TRAINED.items()):
        expected = _train_densely(case, 2)
        for result in results:
            _compare(result[number], expected, 1e-8, name)


def _overflow_in_one_shard() -> tuple[list[float], bool, bool]:
    """A step in which rank 1's shard alone has a gradient that is infinite, between two others."""
    convolution = torch.nn.Conv2d(2, FEATURES, 2).to(memory_format=torch.channels_last)  # whose gradient lies so too
    body, layer = torch.nn.Sequential(convolution, torch.nn.Flatten()), ShardedLinear(FEATURES, 6)
    model = torch.nn.ModuleDict({"body": body, "head": layer})
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    scales, weights = [], []
    for step in range(3):
        inputs, labels = torch.ones(2, 2, 2, 2) + hvd.rank(), torch.tensor([0, 5])
        scaler.scale(sharded_softmax_cross_entropy(body(inputs), labels, layer)).backward()
        if step == 1 and hvd.rank() == 1:
            layer.weight.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        weights.append([each.detach().clone() for each in (convolution.weight, layer.weight)])
    hvd.check_consistency(model.named_parameters())
    is_left_out = all(torch.equal(*pair) for pair in zip(weights[0], weights[1], strict=True))
    return scales, is_left_out, any(torch.equal(*pair) for pair in zip(weights[1], weights[2], strict=True))


def test_no_rank_steps_where_one_shard_overflows(worlds: Any) -> None:
    assert worlds.of(2).run(_overflow_in_one_shard) == [([8.0, 4.0, 4.0], True, False)] * 2


def _overflow_where_this_rank_has_no_own_gradient() -> list[bool]:
    """Which gradients are finite once rank 1 has told of its own, of a parameter that has none here."""
    shared, own, unused = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    own.is_distributed = True  # type: ignore[assignment, method-assign]
    shared.grad = torch.ones(2)
    if hvd.rank() == 1:
        own.grad = torch.tensor([1.0, torch.inf])
    share_overflow({unused: "unused", own: "own", shared: "shared"}, hvd.global_process_set)
    return [bool(each.grad.isfinite().all()) for each in (own, shared) if each.grad is not None]


def test_an_overflow_reaches_ranks_without_a_gradient_of_their_own(worlds: Any) -> None:
    assert worlds.of(2).run(_overflow_where_this_rank_has_no_own_gradient) == [[False], [False, True]]


# --- what else a layer can do ---


def _logits(case: Case) -> list[torch.Tensor]:
    """A loss of one's own: of the logits of all ranks, its part of a sum over ranks."""
    n, rank = hvd.size(), hvd.rank()
    layer = ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)
    layer.load_dense(*case.dense())
    leaf = case.batches(n)[rank][0].clone().requires_grad_()
    logits = layer(leaf)
    assert logits.shape == (sum(case.sizes[:n]), layer.end - layer.first)
    (logits.sin().sum() * n).backward()
    found = [hvd.allgather(logits.detach().T.contiguous()).T, leaf.grad / n]
    found += [hvd.allgather(each.grad) for each in layer.parameters()]
    return [found[0], hvd.allgather(found[1]), *found[2:]]


def test_logits(worlds: Any) -> None:
    for case in (Case(sizes=(2, 0, 1), layer={"bias": True}), Case(sizes=(1, 2, 3), layer=NORMAL)):
        inputs = torch.cat([inputs for inputs, _ in case.batches(3)]).requires_grad_()
        weight, bias = (None if each is None else each.requires_grad_() for each in case.dense())
        logits = (
            functional.normalize(inputs) @ functional.normalize(weight).T if bias is None else inputs @ weight.T + bias
        )
        logits.sin().sum().backward()
        expected = [logits.detach(), inputs.grad, weight.grad, *([] if bias is None else [bias.grad])]
        for result in worlds.of(3).run(_logits, case):
            _compare(result, expected, 1e-12, "logits")


def _saved() -> bool:
    layer = ShardedLinear(FEATURES, 7, bias=True, sample_rate=0.9)
    twins = [copy.deepcopy(layer), torch.load(_bytes(layer), weights_only=False)]
    twins.append(ShardedLinear(FEATURES, 7, bias=True))
    twins[-1].load_state_dict(torch.load(_bytes(layer.state_dict())))
    is_same = all(torch.equal(layer.weight, twin.weight) for twin in twins)
    is_marked = all(each.is_distributed is True for twin in twins for each in twin.parameters())
    stolen = {**layer.state_dict(), "_extra_state": {"n_classes": 7, "first": 1, "end": 2}}
    with pytest.raises(ValueError, match="the state_dict has classes 1 to 1 of 7, but this rank has"):
        layer.load_state_dict(stolen)
    weight, bias = layer.to_dense()
    with pytest.raises(ValueError, match=r"takes a weight of shape \(7, 5\)"):
        layer.load_dense(weight[1:], bias)
    with pytest.raises(ValueError, match="no bias"):
        layer.load_dense(weight)
    ends = hvd.allgather_object((layer.first, layer.end))
    return (
        is_same and is_marked and ends == [(0, 3), (3, 5), (5, 7)] and len({tuple(row) for row in weight.tolist()}) == 7
    )


def _bytes(what: Any) -> io.BytesIO:
    stream = io.BytesIO()
    torch.save(what, stream)
    stream.seek(0)
    return stream


def test_copies_and_checkpoints(worlds: Any) -> None:
    """Of layers that are made with the same seed on all ranks, and have other values on each."""
    assert worlds.of(3).run(lambda: (torch.manual_seed(1), _saved())[1]) == [True] * 3


def _evaluated() -> tuple[bool, ...]:
    case = Case(n_classes=40, layer={"sample_rate": 0.1})
    layer = ShardedLinear(FEATURES, case.n_classes, dtype=case.dtype, **case.layer)
    inputs, labels = case.batches(hvd.size())[hvd.rank()]
    first = sharded_softmax_cross_entropy(inputs, labels, layer)
    second = sharded_softmax_cross_entropy(inputs, labels, layer)
    layer.eval()
    whole = sharded_softmax_cross_entropy(inputs, labels, layer)
    full = functional.cross_entropy(inputs @ layer.to_dense()[0].T, labels)
    return bool(first != second), bool(first < whole), bool(torch.allclose(whole, full)), int(layer.n_drawn) == 2


def test_classes_are_sampled_in_training_only(worlds: Any) -> None:
    assert worlds.of(2).run(_evaluated) == [(True,) * 4] * 2


def _mixed() -> tuple[bool, ...]:
    """Only rank 0 wants its features' gradient; under autocast, with a scaled loss; the graph is gone through twice."""
    case = Case(dtype=torch.float32)
    layer = ShardedLinear(FEATURES, case.n_classes)
    inputs, labels = case.batches(hvd.size())[hvd.rank()]
    leaf = inputs.clone().requires_grad_(hvd.rank() == 0)
    with torch.autocast("cpu"):
        loss = sharded_softmax_cross_entropy(leaf, labels, layer)
        (loss * 65536).backward(retain_graph=True)
        once = layer.weight.grad.clone()
        (loss * 65536).backward()
    twice = torch.allclose(layer.weight.grad, 2 * once, rtol=1e-6)
    wide = ShardedLinear(FEATURES, case.n_classes, dtype=torch.float64)
    wide.load_dense(layer.to_dense()[0])
    sharded_softmax_cross_entropy(inputs.double(), labels, wide).backward()
    is_exact = torch.allclose(wide.weight.grad * 65536, once.double(), rtol=1e-5, atol=1e-2)
    return twice, is_exact, (leaf.grad is not None) is (hvd.rank() == 0)


def test_ranks_that_want_no_gradient_take_part(worlds: Any) -> None:
    assert worlds.of(2).run(_mixed) == [(True,) * 3] * 2


# --- what is wrong ---


def _wrong(which: str) -> None:
    layer = ShardedLinear(FEATURES, 6)
    at_fault = hvd.rank() == 1
    features, labels = torch.zeros(2, FEATURES), torch.tensor([0, 5])
    bad: dict[str, tuple[Any, Any]] = {
        "above": (features, torch.tensor([0, 6])),
        "negative": (features, torch.tensor([-1, 0], dtype=torch.int32)),
        "floating": (features, labels.float()),
        "one-hot": (features, torch.eye(2, 6, dtype=torch.int64)),
        "too few": (features, labels[:1]),
        "narrow": (features[:, 1:], labels),
        "whole": (features.long(), labels),
        "numbers": ([[1.0] * FEATURES], labels),
        "dtype": (features.double(), labels),
    }
    sharded_softmax_cross_entropy(*(bad[which] if at_fault else (features, labels)), layer)


@pytest.mark.parametrize(
    ("which", "text"),
    [
        ("above", "rank 1 gives label 6 for its sample 1, but the layer's classes are 0 to 5"),
        ("negative", "rank 1 gives label -1 for its sample 0"),
        ("floating", "rank 1 gives a sharded layer labels that are not a list of whole numbers"),
        ("one-hot", "labels that are not a list"),
        ("too few", "rank 1 gives 1 labels for 2 samples"),
        ("narrow", "features that are not a table of floating-point numbers with a column for each of the layer's 5"),
        ("whole", "features that are not a table"),
        ("numbers", "features that are not a table"),
        ("dtype", "dtype"),
    ],
)
def test_what_one_rank_gives_wrong_is_said_on_all(worlds: Any, which: str, text: str) -> None:
    for error in worlds.of(2).errors(_wrong, which):
        assert isinstance(error, (hvd.errors.InvalidArgumentError, hvd.errors.MismatchError))
        assert text in str(error)


def _after_a_joined_rank() -> None:
    layer = ShardedLinear(FEATURES, 6)
    try:
        if hvd.rank() == 0:
            sharded_softmax_cross_entropy(torch.zeros(1, FEATURES), torch.tensor([0]), layer)
    finally:
        hvd.join()


def test_a_joined_rank_takes_its_classes_along(worlds: Any) -> None:
    outcomes = worlds.of(2).outcomes(_after_a_joined_rank)
    assert "only 1 of 2 ranks take part in a sharded layer" in str(outcomes[0].error)


def _refused() -> list[str]:
    plain, normal = ShardedLinear(FEATURES, 6), ShardedLinear(FEATURES, 6, normalize=True)
    batch = torch.zeros(1, FEATURES), torch.tensor([0])
    attempts: list[Callable[[], Any]] = [
        lambda: ShardedLinear(FEATURES, 0),
        lambda: ShardedLinear(FEATURES, 6, bias=True, normalize=True),
        lambda: ShardedLinear(FEATURES, 6, sample_rate=0.0),
        lambda: ShardedLinear(FEATURES, 6, sample_rate=1.5),
        lambda: sharded_softmax_cross_entropy(*batch, plain, m2=0.5),
        lambda: sharded_softmax_cross_entropy(*batch, normal, scale=0.0),
        lambda: sharded_softmax_cross_entropy(*batch, normal, m1=math.nan),
        lambda: sharded_softmax_cross_entropy(*batch, plain, reduction="average"),  # type: ignore[arg-type]
    ]
    texts = []
    for attempt in attempts:
        with pytest.raises(ValueError, match=" ") as raised:
            attempt()
        texts.append(str(raised.value))
    normal.shards = Shards(6, 3)
    with pytest.raises(ValueError, match="this is shard 0 of 3 of a ShardedLinear, but this is now rank 0 of 1"):
        normal(batch[0])
    with pytest.raises(ValueError, match="must stay in CPU memory, but its weight is on device meta"):
        plain.to("meta")(batch[0])
    return texts


def test_arguments_that_cannot_be(worlds: Any) -> None:
    texts = worlds.of(1).run(_refused)[0]
    expected = [
        "number of classes must be a whole number from 1; got 0",
        "has no bias",
        "got 0.0",
        "got 1.5",
        "need a ShardedLinear with normalize=True",
        "scale above 0",
        "must be finite",
        "got 'average'",
    ]
    for text, part in itertools.zip_longest(texts, expected, fillvalue="not named"):
        assert part in text
