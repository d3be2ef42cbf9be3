"""DistributedOptimizer in a world of one: it must do what the wrapped optimizer does, and refuse what is wrong."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ciranda.torch as hvd  # noqa: E402
from ciranda._frameworks.groups import make_groups  # noqa: E402

pytestmark = pytest.mark.usefixtures("alone")


def _model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def _loss(model: torch.nn.Module, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (model(torch.randn(16, 4, generator=generator)) ** 2).mean()


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _wrapped(model: torch.nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(_sgd(model), named_parameters=model.named_parameters(), **options)


def _train(model: torch.nn.Module, optimizer: Any, passes: int = 1) -> list[float]:
    for step in range(4):
        optimizer.zero_grad()
        for i in range(passes):
            _loss(model, step * passes + i).backward()
        optimizer.step()
    return [float(value) for parameter in model.parameters() for value in parameter.detach().flatten()]


@pytest.mark.parametrize(
    "make",
    [
        _sgd,
        lambda model: torch.optim.Adam(model.parameters()),
        lambda model: torch.optim.AdamW(model.parameters(), foreach=True),
        lambda model: torch.optim.Adagrad(
            [{"params": list(model.parameters())[:2], "lr": 0.5}, {"params": list(model.parameters())[2:]}]
        ),
    ],
    ids=["SGD", "Adam", "AdamW", "two groups"],
)
@pytest.mark.parametrize("passes", [1, 3])
def test_the_same_as_the_wrapped_optimizer(make: Any, passes: int) -> None:
    plain, distributed = _model(), _model()
    optimizer = hvd.DistributedOptimizer(make(distributed), backward_passes_per_step=passes)
    inner = make(plain)
    assert isinstance(optimizer, type(inner))
    assert type(optimizer).__name__ == type(inner).__name__
    assert _train(distributed, optimizer, passes) == _train(plain, inner, passes)


@pytest.mark.parametrize("groups", [1, 2, 3, 100, "lists"])
def test_groups(groups: Any) -> None:
    plain, distributed = _model(), _model()
    if groups == "lists":
        parameters = list(distributed.parameters())
        groups = [parameters[2:], [parameters[0]]]
    assert _train(distributed, _wrapped(distributed, groups=groups)) == _train(plain, _sgd(plain))


@pytest.mark.parametrize("groups", [None, 1])
def test_many_parameters_of_all_sizes(groups: int | None) -> None:
    sizes = [0, 1, 40_000, 3, 0, 100_000, 5, 5] + [1] * 400
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in sizes]
    named = [(f"a.rather.long.name.of.a.parameter.{i}", parameter) for i, parameter in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.5), named, groups=groups)
    for _ in range(2):
        optimizer.zero_grad()
        sum((i % 7) * parameter.sum() for i, parameter in enumerate(parameters)).backward()
        optimizer.step()
    for i, parameter in enumerate(parameters):
        assert parameter.tolist() == [1.0 - (i % 7)] * parameter.numel()


def test_state_is_taken_over() -> None:
    plain, distributed = _model(), _model()
    inner, wrapped = _sgd(plain), _sgd(distributed)
    _train(plain, inner)
    _train(distributed, wrapped)
    optimizer = hvd.DistributedOptimizer(wrapped, named_parameters=distributed.named_parameters())
    assert _train(distributed, optimizer) == _train(plain, inner)


def test_a_scheduler_made_before_or_after() -> None:
    results = []
    for distribute, before in ((False, True), (True, True), (True, False)):
        model = _model()
        optimizer: Any = _sgd(model)
        inner = optimizer
        if distribute and not before:
            optimizer = _wrapped(model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        if distribute and before:
            optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
        steps = []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        for step in range(3):
            optimizer.zero_grad()
            _loss(model, step).backward()
            optimizer.step()
            with warnings.catch_warnings():
                # torch cannot know that the optimizer it was made for has been wrapped.
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                scheduler.step()
        assert len(steps) == 3
        results.append([parameter.detach().flatten().tolist() for parameter in model.parameters()])
    assert results[0] == results[1] == results[2]


def test_clipping_between_synchronize_and_step() -> None:
    plain, distributed = _model(), _model()
    inner, optimizer = _sgd(plain), _wrapped(distributed)
    for step in range(3):
        for model, one in ((plain, inner), (distributed, optimizer)):
            one.zero_grad()
            _loss(model, step).backward()
            if one is optimizer:
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            if one is optimizer:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                inner.step()
    for a, b in zip(plain.parameters(), distributed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_closures() -> None:
    plain, distributed = _model(), _model()
    inner, optimizer = _sgd(plain), _wrapped(distributed)
    for model, one in ((plain, inner), (distributed, optimizer)):
        for step in range(3):

            def closure(model: Any = model, one: Any = one, step: int = step) -> torch.Tensor:
                one.zero_grad()
                loss = _loss(model, step)
                loss.backward()
                return loss

            assert one.step(closure) > 0
    for a, b in zip(plain.parameters(), distributed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_lbfgs() -> None:
    models = [_model(), _model()]
    for index, model in enumerate(models):
        optimizer: Any = torch.optim.LBFGS(model.parameters(), max_iter=5)
        if index:
            optimizer = hvd.DistributedOptimizer(optimizer)

        def closure(model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = _loss(model, 0)
            loss.backward()
            return loss

        optimizer.step(closure)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_op_of_another_type_is_named() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="op must be Average, Sum, Min, Max or Product, not 'sum'"):
        hvd.DistributedOptimizer(optimizer, model.named_parameters(), op="sum")  # type: ignore[arg-type]


def test_gradients_that_do_not_come_are_none() -> None:
    """As without Ciranda: zeros would be decayed, and count as a step."""
    model = _model()
    unused = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam([*model.parameters(), unused], weight_decay=0.1))
    _train(model, optimizer)
    assert unused.grad is None
    assert unused.tolist() == [1.0, 1.0]
    assert unused not in optimizer.state


def test_a_gradient_that_a_hook_takes_away() -> None:
    """Between its coming and that of its neighbours, with which it was to travel."""
    model, alone = _model(), _model()
    optimizer = _wrapped(model)
    model[2].weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    alone[2].weight.requires_grad_(False)
    assert _train(model, optimizer) == _train(alone, _sgd(alone))


def test_small_neighbours_travel_together() -> None:
    sizes = [1000, 200_000, 50_000, 400_000, 10]
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in sizes]
    groups = make_groups(parameters, None, torch.Tensor, lambda parameter: parameter.nbytes)
    assert [[parameter.numel() for parameter in group] for group in groups] == [
        [10],
        [400_000],
        [50_000, 200_000, 1000],
    ]


def test_more_passes_than_agreed() -> None:
    model = _model()
    optimizer = _wrapped(model, backward_passes_per_step=2)
    for i in range(2):
        _loss(model, i).backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        _loss(model, 2).backward()
    with pytest.raises(AssertionError, match="changed or replaced"):
        optimizer.step()  # the pass too many has added to a gradient before it was refused
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(3)
    for i in range(3):
        _loss(model, i).backward()
    optimizer.step()
    with pytest.raises(ValueError, match="at least 1"):
        optimizer.set_backward_passes_per_step(0)


def test_passes_are_counted_anew() -> None:
    """After set_backward_passes_per_step() and load_state_dict()."""
    model = _model()
    optimizer = _wrapped(model, backward_passes_per_step=2)
    assert optimizer.backward_passes_per_step == 2
    state = optimizer.state_dict()
    _loss(model, 0).backward()
    optimizer.set_backward_passes_per_step(1)
    _loss(model, 1).backward()
    with pytest.raises(AssertionError, match="more than 1 times"):
        _loss(model, 2).backward()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    _loss(model, 3).backward()
    optimizer.step()


def test_a_step_after_synchronize_warns() -> None:
    """The gradients are not combined twice: with op=Sum that would change them."""
    model = _model()
    optimizer = _wrapped(model)
    _loss(model, 0).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="called without optimizer.skip_synchronize"):
        optimizer.step()
    optimizer.zero_grad()
    _loss(model, 1).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
        with pytest.raises(AssertionError, match="twice"), optimizer.skip_synchronize():
            pass
    _train(model, optimizer)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16])
@pytest.mark.parametrize("change", ["clip", "zero"])
def test_gradients_changed_while_they_travel(change: str, compression: Any) -> None:
    model = _model()
    optimizer = _wrapped(model, compression=compression)
    _loss(model, 0).backward()
    if change == "clip":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    else:
        model.zero_grad(set_to_none=False)
    with pytest.raises(AssertionError, match=r"call synchronize\(\) before"):
        optimizer.step()
    optimizer.zero_grad()
    _loss(model, 1).backward()
    optimizer.step()


def test_zero_grad_while_gradients_travel() -> None:
    model = _model()
    optimizer = _wrapped(model)
    _loss(model, 0).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


def test_frozen_parameters_and_thawed_ones() -> None:
    model = _model()
    first = next(model.parameters())
    first.requires_grad_(False)
    optimizer = _wrapped(model)
    frozen = first.clone()
    _train(model, optimizer)
    assert torch.equal(first, frozen)
    first.requires_grad_(True)
    _train(model, optimizer)
    assert not torch.equal(first, frozen)
    extra = torch.nn.Parameter(torch.ones(1))
    optimizer.add_param_group({"params": [extra]})
    (extra * 3).sum().backward()
    optimizer.step()
    assert extra.item() == pytest.approx(0.7)


def test_a_dropped_optimizer_lets_go() -> None:
    model = _model()
    optimizer = _wrapped(model)
    _loss(model, 0).backward()
    optimizer.step()
    reference = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert reference() is None
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    again = _wrapped(model)
    again.zero_grad()
    _train(model, again)


def test_state_dict_round_trip() -> None:
    model = _model()
    optimizer = _wrapped(model)
    _train(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    values = [parameter.detach().clone() for parameter in model.parameters()]
    expected = _train(model, optimizer)
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data.copy_(value)
    steps: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    optimizer.load_state_dict(saved)
    assert _train(model, optimizer) == expected
    assert len(steps) == 4, "loading a state must not make torch wrap step() a second time"


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"named_parameters": [("a", torch.nn.Parameter(torch.ones(1)))]}, "are not named"),
        ({"named_parameters": [torch.ones(1)]}, "tuples.*Tensor"),
        ({"named_parameters": [["a", torch.nn.Parameter(torch.ones(1))]]}, "tuples.*list"),
        ({"named_parameters": [(1, torch.nn.Parameter(torch.ones(1)))]}, "tuples"),
        ({"process_set": hvd.ProcessSet([0])}, "has not been added"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "gradient_predivide_factor"),
        ({"backward_passes_per_step": 0}, "at least 1"),
        ({"groups": -1}, "negative"),
        ({"groups": [1, 2]}, "lists of parameters"),
        ({"gradient_as_bucket_view": True, "op": hvd.Adasum}, "op=Adasum"),
    ],
    ids=str,
)
def test_arguments_that_are_refused(options: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        hvd.DistributedOptimizer(_sgd(_model()), **options)


def test_names_must_be_unique_and_wrapping_is_done_once() -> None:
    model = _model()
    named = [("same", parameter) for parameter in model.parameters()]
    with pytest.raises(ValueError, match="unique"):
        hvd.DistributedOptimizer(_sgd(model), named_parameters=named)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(_wrapped(model))
    parameters = list(model.parameters())
    with pytest.raises(ValueError, match="more than one group"):
        hvd.DistributedOptimizer(_sgd(model), groups=[parameters, parameters])
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedOptimizer(_sgd(model), num_groups=2)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own
@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"groups": 1}], ids=str)
def test_sparse_gradients(options: dict[str, Any]) -> None:
    results = []
    for is_distributed in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(50, 2, sparse=True), torch.nn.Linear(2, 1))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if is_distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, **options)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.tensor([step, 7, 7])).square().sum().backward()
            optimizer.step()
        assert model[0].weight.grad.is_sparse
        results.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(results[0], results[1])


def test_names_of_parameters() -> None:
    """Under the name that scripts written for Horovod read."""
    model = _model()
    assert _wrapped(model)._parameter_names == {parameter: name for name, parameter in model.named_parameters()}
    without = hvd.DistributedOptimizer(_sgd(model))._parameter_names
    assert list(without) == list(model.parameters())
    assert len(set(without.values())) == 4


def test_sparse_gradients_have_sums_and_means_only() -> None:
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=0.1), op=hvd.Max)
    with pytest.raises(ValueError, match="Average and Sum"):
        embedding(torch.tensor([1])).sum().backward()
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("sets_to_none", [True, False])
def test_gradients_lie_together_in_buckets(passes: int, sets_to_none: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2).double())
    plain = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(
        _sgd(model), backward_passes_per_step=passes, groups=1, gradient_as_bucket_view=True
    )
    reference = _sgd(plain)
    memory = set()
    for _ in range(3):
        for trained, steps in ((model, optimizer), (plain, reference)):
            steps.zero_grad(set_to_none=sets_to_none)
            for _ in range(passes):
                trained[1](trained[0](torch.ones(1, 3)).double()).square().sum().backward()
            steps.step()
        gradients = [parameter.grad for parameter in model.parameters()]
        for first, second in ((gradients[0], gradients[1]), (gradients[2], gradients[3])):
            assert second.data_ptr() == first.data_ptr() + first.numel() * first.element_size()
        memory.add(tuple(gradient.data_ptr() for gradient in gradients))
    assert len(memory) == 1, "every step has the same places"
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_gradient_may_be_expanded() -> None:
    """One that the script sets itself: those of backward() are not."""
    model, plain = _model(), _model()
    for trained, steps in ((model, _wrapped(model)), (plain, _sgd(plain))):
        for parameter in trained.parameters():
            parameter.grad = torch.ones(()).expand_as(parameter)
        steps.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def _double(parameter: torch.nn.Parameter) -> None:
    parameter.grad.mul_(2)


def _replace(parameter: torch.nn.Parameter) -> None:
    parameter.grad = parameter.grad.clone()


def _remove(parameter: torch.nn.Parameter) -> None:
    parameter.grad = None


@pytest.mark.parametrize("change", [_double, _replace, _remove])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 1},
        {"gradient_as_bucket_view": True, "groups": 1},
        {"compression": hvd.Compression.fp16, "groups": 2},
    ],
    ids=["alone", "one group", "bucket", "compressed"],
)
def test_a_gradient_that_is_touched_while_it_travels(change: Any, options: dict[str, Any]) -> None:
    for index, name in enumerate(name for name, _ in _model().named_parameters()):
        model = _model()
        optimizer = _wrapped(model, **options)
        _loss(model, 0).backward()
        change(list(model.parameters())[index])
        # All gradients in a bucket's memory count one version.
        which = r"\S+" if "gradient_as_bucket_view" in options else name
        with pytest.raises(AssertionError, match=rf"gradient of \S+\.{which} was changed or replaced"):
            optimizer.step()


def test_a_gradient_that_a_deferred_step_needs_is_replaced() -> None:
    model = _model()
    optimizer = _wrapped(model, overlap_forward=model)
    for step in range(2):
        optimizer.zero_grad()
        _loss(model, step).backward()
        optimizer.step()
    model[0].weight.grad = None
    with pytest.raises(AssertionError, match=r"gradient of \S+\.0\.weight was changed or replaced"):
        _loss(model, 2)


def test_weights_that_are_refused() -> None:
    model = _model()
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="0 or more"):
            _wrapped(model).set_weight(weight)
    with pytest.raises(ValueError, match="op=Average only"):
        _wrapped(model, op=hvd.Sum).set_weight(1.0)
    adasum = _wrapped(model, op=hvd.Adasum)
    adasum.set_weight(None)
    with pytest.raises(ValueError, match=r"set_weight\(2\): weights are for op=Average only, .* op=Adasum"):
        adasum.set_weight(2)
    with pytest.raises(ValueError, match='divisor must be "contributors" or "world"'):
        _wrapped(model, divisor="all")
    under_way = _wrapped(model)
    model(torch.ones(1, 4)).sum().backward()
    with pytest.raises(AssertionError, match=r"set_weight\(\) was called between backward\(\) and step\(\)"):
        under_way.set_weight(2.0)
    under_way.step()


# --- copies ---


def _pickled(both: Any) -> Any:
    return pickle.loads(pickle.dumps(both))


def _saved(both: Any) -> Any:
    file = io.BytesIO()
    torch.save(both, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [_pickled, _saved, copy.deepcopy])
def test_copies_go_on_like_the_original(copied: Any) -> None:
    model = _model()
    model[0].bias.requires_grad_(False)
    optimizer = _wrapped(model, backward_passes_per_step=2, compression=hvd.Compression.fp16, groups=2)
    _train(model, optimizer, 2)
    again, other = copied((model, optimizer))
    assert isinstance(other, torch.optim.SGD)
    assert other.backward_passes_per_step == 2
    expected = _train(model, optimizer, 2)
    assert _train(again, other, 2) == expected
    with pytest.raises(AssertionError, match="more than 2 times"):
        [_loss(again, 0).backward() for _ in range(3)]
