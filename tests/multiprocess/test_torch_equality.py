"""n ranks, each with its share of a batch, must do what one process does with the whole batch.

fp32 must agree to 1e-6 of the parameters' norm. Optimizers that divide by roots of gradients, or look at their signs
only, magnify the rounding of a gradient near zero without bound: those are compared in fp64, to 1e-9.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import BATCH, Model, Share, Training, assert_same, flat, loss_of, mlp

import ciranda.torch as hvd

pytestmark = [pytest.mark.multiprocess, pytest.mark.filterwarnings("ignore:Sparse invariant checks")]  # torch's own

SIZES = pytest.mark.parametrize("n_ranks", [2, 3, 4])
FP32 = 1e-6
FP64 = 1e-9


def _double() -> Model:
    return mlp(torch.float64)


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def _compare(worlds: Any, n_ranks: int, training: Training, tolerance: float) -> None:
    # A method would travel with its module by reference, which the ranks cannot import.
    assert_same(worlds.of(n_ranks).run(_distributed, training), training.alone(), tolerance)


def _distributed(training: Training) -> torch.Tensor:
    return training.distributed()


# --- the arguments of DistributedOptimizer ---


@SIZES
@pytest.mark.parametrize(
    ("passes", "options"),
    [
        (1, {}),
        (3, {}),
        (1, {"groups": 2}),
        (1, {"gradient_predivide_factor": 8.0}),
        (2, {"gradient_predivide_factor": 3.0, "groups": 1}),
    ],
    ids=str,
)
def test_arguments(worlds: Any, n_ranks: int, passes: int, options: dict[str, Any]) -> None:
    _compare(worlds, n_ranks, Training(_sgd, passes=passes, options=options), FP32)


@SIZES
def test_sum(worlds: Any, n_ranks: int) -> None:
    """The sum of n means is n times the mean: a learning rate divided by n makes up for it."""
    training = Training(lambda p: torch.optim.SGD(p, lr=0.1 / n_ranks), options={"op": hvd.Sum})
    alone = Training(lambda p: torch.optim.SGD(p, lr=0.1)).alone()
    assert_same(worlds.of(n_ranks).run(_distributed, training), alone, FP32)


class _Halves(hvd.Compressor):
    """A user's own compressor, without loss: sends half of what the gradient is, and remembers nothing but that."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor / 2, "half"

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        assert ctx == "half"
        return tensor * 2


@SIZES
@pytest.mark.parametrize(
    ("compression", "tolerance"),
    [(hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2), (_Halves, FP32)],
    ids=["fp16", "bf16", "own"],
)
def test_compression(worlds: Any, n_ranks: int, compression: Any, tolerance: float) -> None:
    """To the precision of what is sent: 11 bits of fp16, 8 of bf16."""
    _compare(worlds, n_ranks, Training(_sgd, options={"compression": compression}), tolerance)


def _weighted(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    """Uneven batches: rank r has r times as many samples as rank 1, and rank 0 has none in every second step."""
    generator = torch.Generator().manual_seed(number)
    inputs, targets = (torch.randn(BATCH, width, generator=generator).to(flat(model)) for width in (6, 4))
    first = number % 2
    cuts = [BATCH * rank * (rank + first) // (share.parts * (share.parts + first)) for rank in range(share.parts + 1)]
    mine = slice(cuts[share.part], cuts[share.part + 1])
    optimizer.zero_grad()
    n_samples = cuts[share.part + 1] - cuts[share.part]
    if is_distributed:
        optimizer.set_weight(n_samples)
    if n_samples:
        torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
        if is_distributed:
            with pytest.raises(AssertionError, match="before backward"):
                optimizer.set_weight(1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
        optimizer.step()


@SIZES
@pytest.mark.parametrize("options", [{}, {"groups": 1, "gradient_predivide_factor": 2.0}], ids=str)
def test_weights(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    _compare(worlds, n_ranks, Training(_sgd, _double, step=_weighted, options=options), FP64)


def _change_passes(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    passes = 1 + number % 3
    if is_distributed:
        optimizer.set_backward_passes_per_step(passes)
    optimizer.zero_grad()
    for i in range(passes):
        loss_of(model, 3 * number + i, share).backward()
    optimizer.step()


@SIZES
def test_other_numbers_of_passes(worlds: Any, n_ranks: int) -> None:
    _compare(worlds, n_ranks, Training(_sgd, step=_change_passes), FP32)


def _add_a_layer(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    if number == 2:
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.05})
    model.zero_grad()
    loss_of(model, number, share).backward()
    optimizer.step()


@SIZES
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=str)
def test_added_parameters(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    training = Training(lambda p: _sgd(list(p)[:2]), step=_add_a_layer, options=options)
    _compare(worlds, n_ranks, training, FP32)


def _train_copies(share: Share, is_distributed: bool) -> torch.Tensor:
    """Model and optimizer are pickled, and go on as copies, between two steps."""
    model = mlp()
    optimizer: Any = torch.optim.Adam(model.double().parameters(), lr=0.01)
    if is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for number in range(4):
        optimizer.zero_grad()
        loss_of(model, number, share).backward()
        optimizer.step()
        model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
    return flat(model)


@SIZES
def test_pickled_optimizers(worlds: Any, n_ranks: int) -> None:
    results = worlds.of(n_ranks).run(lambda: _train_copies(Share(hvd.rank(), hvd.size()), True))
    assert_same(results, _train_copies(Share(), False), FP64)


# --- every optimizer of torch ---

_P = Any
EVERY_CLASS: dict[str, Callable[[_P], torch.optim.Optimizer]] = {
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05, t0=2),
    "Adadelta": torch.optim.Adadelta,
    "Adafactor": torch.optim.Adafactor,
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
    "Muon": lambda p: torch.optim.Muon([q for q in p if q.ndim == 2], lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "SGD": _sgd,
}


def test_every_class_is_here() -> None:
    classes = {
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    assert classes - {"SparseAdam"} <= set(EVERY_CLASS), "SparseAdam is tested with sparse gradients"


def _step_with_closure(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, number, share)
        loss.backward()
        return loss

    optimizer.step(closure)


@SIZES
@pytest.mark.parametrize("name", sorted(EVERY_CLASS))
def test_every_optimizer(worlds: Any, n_ranks: int, name: str) -> None:
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    training = Training(EVERY_CLASS[name], _double, step=_step_with_closure if name == "LBFGS" else None)
    # Muon computes its step in bfloat16.
    _compare(worlds, n_ranks, training, 1e-2 if name == "Muon" else FP64)


@SIZES
def test_closures(worlds: Any, n_ranks: int) -> None:
    _compare(worlds, n_ranks, Training(_sgd, step=_step_with_closure), FP32)


# --- between the backward pass and the step ---


def _clip(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    optimizer.zero_grad()
    loss_of(model, number, share).backward()
    if is_distributed:
        optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    if is_distributed:
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()


@SIZES
def test_clipping(worlds: Any, n_ranks: int) -> None:
    _compare(worlds, n_ranks, Training(_sgd, step=_clip), FP32)


def _scaled(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    """Step 2 overflows on rank 0 alone, and must be skipped by all."""
    scaler = model.__dict__.setdefault("scaler", torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2))
    optimizer.zero_grad()
    loss = loss_of(model, number, share)
    if number == 2 and share.part == 0:
        loss = loss * torch.inf
    scaler.scale(loss).backward()
    if number == 3:  # without clipping there is nothing to be said
        scaler.step(optimizer)
        scaler.update()
        return
    if is_distributed:
        optimizer.synchronize()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    if is_distributed:
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
    else:
        scaler.step(optimizer)
    scaler.update()


@SIZES
def test_grad_scaler(worlds: Any, n_ranks: int) -> None:
    _compare(worlds, n_ranks, Training(_sgd, step=_scaled), FP32)


def _with_scheduler(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    if "scheduler" not in model.__dict__:
        model.__dict__["scheduler"] = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=10)
    optimizer.zero_grad()
    loss_of(model, number, share).backward()
    optimizer.step()
    model.__dict__["scheduler"].step()


@SIZES
def test_scheduler(worlds: Any, n_ranks: int) -> None:
    _compare(worlds, n_ranks, Training(_sgd, step=_with_scheduler), FP32)


# --- parameters that come and go ---


def _branches() -> Model:
    torch.manual_seed(5)
    return torch.nn.ModuleList(torch.nn.Linear(6, 4) for _ in range(4))


def _step_with_branches(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    """Each sample goes one of three ways, the fourth is never taken, and no way is taken in every step."""
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(BATCH, 6, generator=generator)
    way = torch.arange(BATCH) * 2 // BATCH + number % 2
    optimizer.zero_grad()
    # Contiguous shares: a rank takes one way or two.
    mine = torch.arange(BATCH).chunk(share.parts)[share.part]
    loss = torch.zeros(())
    for index in sorted(set(way[mine].tolist())):
        loss = loss + model[index](inputs[mine][way[mine] == index]).square().sum() / len(mine)
    loss.backward()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
        optimizer.step()


@SIZES
@pytest.mark.parametrize(
    "options", [{}, {"groups": 3}, {"groups": 8}, {"groups": 3, "gradient_as_bucket_view": True}], ids=str
)
def test_parameters_without_gradients(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    """With momentum and weight decay a gradient of zeros is another thing than none."""
    training = Training(_sgd, _branches, step=_step_with_branches, options=options, steps=6)
    _compare(worlds, n_ranks, training, FP32)


def _partly_unreached() -> Model:
    model = mlp()
    model[0].extra = torch.nn.Linear(3, 3)  # which no forward pass calls
    return model


def _scaled_without_synchronize(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    scaler = model.__dict__.setdefault("scaler", torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2))
    optimizer.zero_grad()
    time.sleep(0.02 * (share.part == number % 2))  # for whose gradients the other's wait
    scaler.scale(loss_of(model, number, share)).backward()
    if number % 3 == 0:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


def test_grad_scaler_where_gradients_are_missing(worlds: Any) -> None:
    """GradScaler changes gradients, some of which are under way though the backward pass has not reached all."""
    training = Training(_sgd, _partly_unreached, step=_scaled_without_synchronize, options={"groups": 8})
    _compare(worlds, 2, training, FP32)


def _thaw(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    model[0].requires_grad_(number >= 2)  # frozen when it is wrapped, too
    model[2].requires_grad_(number != 3)
    optimizer.zero_grad()
    loss_of(model, number, share).backward()
    optimizer.step()


def _half_frozen() -> Model:
    model = mlp()
    model[0].requires_grad_(False)
    return model


BUCKETS = pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=["private", "buckets"])


@SIZES
@BUCKETS
def test_frozen_and_thawed(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    _compare(worlds, n_ranks, Training(_sgd, _half_frozen, step=_thaw, options=options), FP32)


def _move(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    if number == 1:
        model.to(torch.float64)
    if number == 3:
        model.to(torch.float32)
    if number == 4:  # into new memory
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    optimizer.zero_grad()
    loss_of(model, number, share).backward()
    optimizer.step()


@SIZES
@BUCKETS
def test_moved_models(worlds: Any, n_ranks: int, options: dict[str, Any]) -> None:
    _compare(worlds, n_ranks, Training(lambda p: torch.optim.SGD(p, lr=0.1), step=_move, options=options), FP32)


# --- sparse gradients ---


def _embeddings() -> Model:
    torch.manual_seed(7)
    # In the first, rows are few; in the second, most are hit and dense is cheaper.
    tables = [torch.nn.Embedding(rows, 3, sparse=True) for rows in (500, 6)]
    return torch.nn.ModuleDict({"big": tables[0], "small": tables[1], "head": torch.nn.Linear(3, 1)}).double()


def _lookup(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
    generator = torch.Generator().manual_seed(number)
    big = torch.randint(0, 500, (BATCH,), generator=generator)
    small = torch.randint(0, 6, (BATCH,), generator=generator)
    mine = slice(share.part, None, share.parts)
    optimizer.zero_grad()
    found = model["big"](big[mine])
    if number % 2 == 0:
        found = found + model["small"](small[mine])
    loss = model["head"](found).square().mean()
    if number != 3:
        loss.backward()
    elif share.part == 0:  # alone, for all of them
        (loss * share.parts).backward()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "parameters got a gradient on other ranks")
        optimizer.step()


class _SparseAdam(torch.optim.SparseAdam):
    """For the embeddings; the head does not learn."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(list(parameters)[:2], lr=0.05)


SPARSE = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "SparseAdam": _SparseAdam,
}


def _first_share_in_step_3(n_ranks: int) -> Callable[..., None]:
    def step(model: Model, optimizer: Any, number: int, share: Share, is_distributed: bool) -> None:
        if number == 3 and not is_distributed:
            share = Share(0, n_ranks)
            generator = torch.Generator().manual_seed(number)
            big = torch.randint(0, 500, (BATCH,), generator=generator)
            optimizer.zero_grad()
            model["head"](model["big"](big[:: share.parts])).square().mean().backward()
            optimizer.step()
            return
        _lookup(model, optimizer, number, share, is_distributed)

    return step


@SIZES
@pytest.mark.parametrize("name", sorted(SPARSE))
@pytest.mark.parametrize("options", [{}, {"groups": 3}, {"groups": 2, "gradient_as_bucket_view": True}], ids=str)
def test_sparse_gradients(worlds: Any, n_ranks: int, name: str, options: dict[str, Any]) -> None:
    training = Training(SPARSE[name], _embeddings, options=options, step=_first_share_in_step_3(n_ranks))
    _compare(worlds, n_ranks, training, FP64)


@SIZES
def test_sparse_as_dense(worlds: Any, n_ranks: int) -> None:
    training = Training(
        SPARSE["SGD"], _embeddings, options={"sparse_as_dense": True}, step=_first_share_in_step_3(n_ranks)
    )
    _compare(worlds, n_ranks, training, FP64)


# --- models and optimizers in other forms ---


def _compiled() -> Model:
    return torch.compile(mlp(), backend="aot_eager")  # type: ignore[return-value]


@SIZES
def test_compiled_models(worlds: Any, n_ranks: int) -> None:
    _compare(worlds, n_ranks, Training(_sgd, _compiled), FP32)


def _two_optimizers(share: Share, is_distributed: bool) -> torch.Tensor:
    """A generator and a critic, without names, both of whose gradients are on their way at once."""
    model = mlp()
    critic = torch.nn.Linear(4, 1)
    torch.nn.init.constant_(critic.weight, 0.3)
    torch.nn.init.constant_(critic.bias, 0.1)
    optimizers: list[Any] = [_sgd(model.parameters()), torch.optim.Adagrad(critic.parameters(), lr=0.05)]
    if is_distributed:
        optimizers = [hvd.DistributedOptimizer(optimizer) for optimizer in optimizers]
    for number in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        generator = torch.Generator().manual_seed(number)
        inputs = torch.randn(BATCH, 6, generator=generator)[share.part :: share.parts]
        critic(model(inputs)).square().mean().backward()
        for optimizer in optimizers if number % 2 else reversed(optimizers):
            optimizer.step()
    return torch.cat([flat(model), flat(critic)])


@SIZES
def test_two_optimizers(worlds: Any, n_ranks: int) -> None:
    results = worlds.of(n_ranks).run(lambda: _two_optimizers(Share(hvd.rank(), hvd.size()), True))
    assert_same(results, _two_optimizers(Share(), False), FP32)
