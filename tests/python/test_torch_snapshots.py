"""Commits of torch's states: copies in two sets of buffers, of which the older is overwritten."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ciranda.torch.elastic import TorchState
from ciranda.torch.elastic.snapshots import Snapshot, taken


def tensors_of(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def addresses(snapshot: Snapshot) -> list[int]:
    return sorted({tensor.data_ptr() for tensor in tensors_of(snapshot.content)})


def kinds_of_tensors() -> dict[str, Any]:
    base = torch.arange(24.0).reshape(4, 6)
    return {
        "contiguous": base.clone(),
        "transposed": base.t(),
        "row": base[1],
        "every second": base[:, ::2],
        "expanded": base[:1].expand(5, 6),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 3),
        "half": base.to(torch.bfloat16),
        "bool": base > 3,
        "conjugate": torch.complex(base, base + 1).conj(),
        "negative": torch.complex(base, base + 1).conj().imag,
        "sparse": (base * (base > 20)).to_sparse(),
        "parameter": torch.nn.Parameter(base.clone()),
        "channels last": torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
        "others": [1, None, "text", (2.5, {3: base + 1})],
    }


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right) or isinstance(left, torch.Tensor)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert left.layout == right.layout
        assert torch.equal(left.to_dense(), right.to_dense())
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key, each in left.items():
            assert_same(each, right[key])
    elif isinstance(left, (list, tuple)):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


def test_a_snapshot_has_every_kind_of_tensor_and_shares_no_memory() -> None:
    values = kinds_of_tensors()
    expected = copy.deepcopy(values)
    first = taken(values)
    second = taken(values, over=taken(values))
    for tensor in tensors_of(values):
        if tensor.layout is torch.strided and not tensor.is_neg() and 0 not in tensor.stride():
            tensor.detach().zero_()
    assert_same(first.content, expected)
    assert_same(second.content, expected)


def test_a_third_snapshot_is_written_over_the_first() -> None:
    values = {"a": torch.ones(1000), "b": [torch.ones(3, 3), torch.zeros(1000)]}
    first, second = taken(values), taken(values)
    memory = addresses(first)
    values["a"].fill_(2.0)
    third = taken(values, over=first)
    assert addresses(third) == memory
    assert_same(third.content, values)
    assert second.content["a"][0] == 1.0


def test_tensors_that_come_go_and_change() -> None:
    snapshot = taken({"a": torch.ones(10), "b": torch.ones(5)})
    for values in (
        {"a": torch.ones(11), "b": torch.ones(5), "c": torch.ones(4)},
        {"a": torch.ones(11, dtype=torch.float64), "c": torch.ones(2, 2)},
        {"b": torch.arange(11.0), "a": torch.zeros(11)},
    ):
        snapshot = taken(values, over=snapshot)
        assert_same(snapshot.content, values)
        assert len(addresses(snapshot)) == len(values), "what is not needed is freed"
    assert sum(map(len, snapshot.buffers.values())) == 2


def test_shared_weights_are_copied_once_and_stay_shared() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    state = TorchState(model)
    (handler,) = state._handlers.values()
    assert len(addresses(handler._last)) == 1
    expected = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.zero_()
    state.restore()
    assert torch.equal(model[0].weight, expected)
    assert model[1].weight is model[0].weight


def test_what_torch_notes_in_a_state_dictionary_is_kept() -> None:
    model = torch.nn.BatchNorm1d(3)
    content = taken(model.state_dict()).content
    assert type(content) is OrderedDict
    assert content._metadata == model.state_dict()._metadata


def training() -> tuple[Any, Any, Any]:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, TorchState(model, optimizer, step=0)


def step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 64)).square().mean().backward()
    optimizer.step()


def all_addresses(state: Any) -> list[int]:
    return [address for handler in state._handlers.values() for address in addresses(handler._last)]


def test_commits_allocate_nothing_after_the_second() -> None:
    """The optimizer has no state before its first step."""
    model, optimizer, state = training()
    seen = []
    for _ in range(6):
        step(model, optimizer)
        state.save()
        seen.append(all_addresses(state))
    assert seen[1] == seen[3] == seen[5]
    assert seen[2] == seen[4] == seen[0]
    assert not set(seen[0]) & set(seen[1])


def test_an_optimizer_that_was_restored_does_not_use_the_copy_itself() -> None:
    model, optimizer, state = training()
    step(model, optimizer)
    state.save()
    committed = copy.deepcopy(optimizer.state_dict())
    for _ in range(2):
        state.restore()
        assert_same(optimizer.state_dict()["state"], committed["state"])
        step(model, optimizer)


@pytest.mark.parametrize("failing", ["model", "optimizer"])
def test_a_commit_that_fails_halfway_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    model, optimizer, state = training()
    for _ in range(3):
        step(model, optimizer)
        state.step += 1
        state.save()
    expected = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    step(model, optimizer)
    state.step += 1
    copy_ = torch.Tensor.copy_
    n_left = 1 if failing == "model" else 4

    def copy_or_fail(self: Any, other: Any) -> Any:
        nonlocal n_left
        if n_left == 0:
            raise KeyboardInterrupt
        n_left -= 1
        return copy_(self, other)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "copy_", copy_or_fail)
        with pytest.raises(KeyboardInterrupt):
            state.save()
    state.restore()
    assert state.step == 3
    assert_same(model.state_dict(), expected[0])
    assert_same(optimizer.state_dict()["state"], expected[1]["state"])


def test_what_a_synchronization_may_go_back_to_is_not_overwritten() -> None:
    """Also if it saves more than once, as a subclass's may."""
    model, optimizer, state = training()
    for _ in range(3):
        step(model, optimizer)
        state.save()
    expected = copy.deepcopy(model.state_dict())
    saved = state.saved()
    for _ in range(3):
        step(model, optimizer)
        state.save()
    state.set_saved(saved)
    state.restore()
    assert_same(model.state_dict(), expected)


def test_what_a_synchronization_has_not_gone_back_to_is_used_again() -> None:
    model, optimizer, state = training()
    step(model, optimizer)
    state.save()
    handler = state._handlers["model"]
    addresses = set()
    for snapshot in (handler._last, handler._spare):
        addresses.update(each.data_ptr() for buffers in snapshot.buffers.values() for each in buffers)
    state.saved()
    state.save()  # as sync() does
    state.release_saved()
    for _ in range(2):
        state.save()
        used = {each.data_ptr() for buffers in handler._last.buffers.values() for each in buffers}
        assert used <= addresses, "other memory was allocated"
