"""Training that begins again from its last commit must end like training that never failed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from training import Share, flat, loss_of, mlp

import ciranda.torch as hvd
from ciranda.elastic import HostsUpdatedInterrupt
from ciranda.errors import AbortedError, MismatchError, NotInitializedError

pytestmark = pytest.mark.multiprocess

SIZES = pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
STEPS = 6
Log = dict[str, Any]


def _train(failures: dict[int, str], failing_rank: int) -> tuple[torch.Tensor, Log]:
    """Commit every second step; at the steps of `failures`, once each, something happens on one rank."""
    torch.manual_seed(hvd.rank())  # the state makes the ranks alike
    model = mlp()
    with torch.no_grad():
        model[0].weight.add_(hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    state = hvd.elastic.TorchState(model, optimizer, step=0, losses=[])
    log: Log = {"calls": 0, "resets": 0, "steps": 0}
    remaining = dict(failures)
    state.register_reset_callbacks([lambda: log.update(resets=log["resets"] + 1)])

    def happen(what: str) -> None:
        if what == "leave":
            hvd.shutdown()
            raise AbortedError("this rank has had enough")
        if what == "hosts":
            state.on_hosts_updated(0.0, 2)

    @hvd.elastic.run
    def train(state: Any, factor: float) -> str:
        assert factor == 1.0
        log["calls"] += 1
        while state.step < STEPS:
            what = remaining.pop(state.step, None)
            if what is not None and hvd.rank() == failing_rank:
                happen(what)
            optimizer.zero_grad()
            loss = loss_of(model, state.step, Share(hvd.rank(), hvd.size())) * factor
            loss.backward()
            optimizer.step()
            state.losses.append(round(hvd.allreduce(loss.detach()).item(), 6))
            state.step += 1
            log["steps"] += 1
            if state.step % 2 == 0:
                state.commit()
        return "done"

    assert train(state, factor=1.0) == "done"
    assert len(state.losses) == STEPS
    log["losses"] = state.losses
    return flat(model), log


@SIZES
def test_after_failures_like_without(worlds: Any, n_ranks: int) -> None:
    """Step 3 fails on the last rank, before the first commit after it is reached; and step 4, right after one."""
    world = worlds.of(n_ranks)
    expected = world.run(_train, {}, 0)
    results = world.run(_train, {3: "leave", 4: "leave"}, n_ranks - 1)
    for (parameters, log), (reference, undisturbed) in zip(results, expected, strict=True):
        assert torch.equal(parameters, reference)
        assert torch.equal(parameters, results[0][0])
        assert log["losses"] == undisturbed["losses"]
        assert (log["calls"], log["resets"]) == (3, 2)
        assert log["steps"] == STEPS + 1, "step 2 was made twice"
        assert (undisturbed["calls"], undisturbed["steps"]) == (1, STEPS)


def _train_epochs(failing: int | None) -> tuple[torch.Tensor, list[int]]:
    """As the guide's page shows; in epoch `failing` the last rank fails once, in the middle."""
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, epoch=0)
    trained = []
    failures = [] if failing is None else [failing]

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.epoch < 3:
            for batch in range(2):
                if batch and state.epoch in failures and hvd.rank() == hvd.size() - 1:
                    failures.clear()
                    raise hvd.HorovodInternalError("something has gone wrong on this rank")
                optimizer.zero_grad()
                loss_of(model, 2 * state.epoch + batch, Share(hvd.rank(), hvd.size())).backward()
                optimizer.step()
            trained.append(state.epoch)
            state.epoch += 1
            state.commit()

    train(state)
    return flat(model), trained


def test_no_epoch_is_trained_twice(worlds: Any) -> None:
    world = worlds.of(2)
    expected, _ = world.run(_train_epochs, None)[0]
    for failing in (0, 1):
        for parameters, trained in world.run(_train_epochs, failing):
            assert trained == [0, 1, 2]
            assert torch.equal(parameters, expected)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_other_hosts_interrupt_without_loss(worlds: Any, n_ranks: int) -> None:
    """Rank 0 is told at step 3; the commit after it tells everybody."""
    world = worlds.of(n_ranks)
    expected = world.run(_train, {}, 0)
    for (parameters, log), (reference, _) in zip(world.run(_train, {3: "hosts"}, 0), expected, strict=True):
        assert torch.equal(parameters, reference)
        assert (log["calls"], log["resets"], log["steps"]) == (2, 1, STEPS)


def _check_disagreement() -> None:
    calls = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        calls.append(1)
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="x")

    with pytest.raises(MismatchError):
        train(hvd.elastic.TorchState())
    assert calls == [1]


def test_disagreement_is_not_tried_again(worlds: Any) -> None:
    worlds.of(2).run(_check_disagreement)


def _check_removals() -> None:
    state = hvd.elastic.TorchState(number=hvd.rank())
    state.sync()
    assert state.number == 0
    state.commit()
    for kinds, is_removal_only in (([1, 1], True), ([1, 3], False)):
        if hvd.rank() == 0:
            for kind in kinds:
                state.on_hosts_updated(0.0, kind)
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            state.check_host_updates()
        assert caught.value.skip_sync == is_removal_only


def test_who_only_loses_hosts_need_not_synchronize(worlds: Any) -> None:
    worlds.of(3).run(_check_removals)


def _take_turns(sampler: Any, n_batches: int) -> list[int]:
    """Use batches of two; return what all ranks used."""
    mine = []
    for batch in range(n_batches):
        mine += sampler.get_indices(batch, 2)
        sampler.record_batch(batch, 2)
    return [index for one_rank in hvd.allgather_object(mine) for index in one_rank]


def _check_sampler() -> None:
    """No sample is used twice, or left out, when the epoch is begun again in the middle."""
    n, rank = hvd.size(), hvd.rank()
    sampler = hvd.elastic.ElasticSampler(range(8 * n), seed=3)
    state = hvd.elastic.TorchState(sampler=sampler)
    first = list(sampler)
    assert len(first) == len(sampler) == 8
    used = set(_take_turns(sampler, 2))
    state.commit()
    sampler.record_batch(2, 2)
    state.restore()
    assert (sampler.processed_num, sampler.processed_indices) == (4 * n, used)
    if rank != 0:
        sampler.record_batch(2, 2)  # a rank that is further than the others
    state.sync()
    assert sampler.processed_indices == used
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 4 * n}
    rest = list(sampler)
    everyones = hvd.allgather(torch.tensor(rest)).tolist()
    assert sorted(everyones) == sorted(set(range(8 * n)) - used)
    sampler.set_epoch(1)
    assert len(sampler) == 8
    assert list(sampler) != first
    tiny = hvd.elastic.ElasticSampler(range(1), shuffle=False)
    assert list(tiny) == [0]
    tiny.record_batch(0, 1)
    tiny.reset()
    assert (len(tiny), list(tiny)) == (0, [])
    assert rank == sampler.rank


def _check_new_division() -> None:
    """Only hosts have gone: there is no sync, but the samples that are left are divided anew."""
    sampler = hvd.elastic.ElasticSampler(range(4 * hvd.size()), seed=1)
    state = hvd.elastic.TorchState(sampler=sampler, used=[])

    @hvd.elastic.run
    def train(state: Any) -> list[int]:
        state.used += _take_turns(state.sampler, 1)
        if len(state.used) == 2 * hvd.size():
            state.on_hosts_updated(0.0, 1)
        state.commit()
        return sorted(state.used)

    assert train(state) == list(range(4 * hvd.size()))


@pytest.mark.parametrize("n_ranks", [1, 3])
def test_a_sampler_divides_anew_where_hosts_have_only_gone(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_new_division)


@SIZES
def test_sampler(worlds: Any, n_ranks: int) -> None:
    worlds.of(n_ranks).run(_check_sampler)


class _Counted:
    def __init__(self) -> None:
        self.count = 0


def _check_handlers() -> None:
    from ciranda.torch.elastic import state as states

    class Handler(states.StateHandler):
        def save(self) -> None:
            self.saved = self.value.count

        def restore(self) -> None:
            self.value.count = self.saved

        def sync(self) -> None:
            self.value.count = hvd.broadcast_object(self.value.count)
            self.save()

    before = states.get_handler_registry()
    states.set_handler_registry([(_Counted, Handler), *before])
    try:
        state = hvd.elastic.TorchState(counted=_Counted(), plain=[1])
        state.counted.count = 5 + hvd.rank()
        state.plain.append(2)
        state.sync()
        assert (state.counted.count, state.plain) == (5, [1, 2])
        state.counted.count = 9
        state.plain.append(3)
        state.restore()
        assert (state.counted.count, state.plain) == (5, [1, 2])
        other = _Counted()
        state.counted = other
        other.count = 7
        state.restore()
        assert (state.counted is other, other.count) == (True, 0)
    finally:
        states.set_handler_registry(before)


def test_own_handlers(worlds: Any) -> None:
    worlds.of(2).run(_check_handlers)


# --- DistributedDataParallel, formed anew in each world


def _no_hook(wrapped: Any) -> None:
    pass


def _hook_of_torch(wrapped: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    wrapped.register_comm_hook(None, default_hooks.allreduce_hook)


def _hook_of_ours(wrapped: Any) -> None:
    from ciranda.torch.distributed import ddp_comm_hook

    wrapped.register_comm_hook(None, ddp_comm_hook)


def _train_by_ddp(
    options: dict[str, Any], register: Callable[[Any], None], failing: int | None
) -> tuple[torch.Tensor, list[bool]]:
    """At step `failing` the last rank fails, and so cuts off the others' backward passes, with several buckets."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import ciranda.torch.distributed  # noqa: F401

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    wrappers: list[weakref.ref[Any]] = []
    are_gone = []
    failures = [] if failing is None else [failing]

    @hvd.elastic.run
    def train(state: Any) -> None:
        are_gone.append(all(wrapper() is None for wrapper in wrappers))
        dist.init_process_group("ciranda")
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0001, **options)
        register(wrapped)
        wrappers.append(weakref.ref(wrapped))
        while state.step < STEPS:
            if state.step in failures and hvd.rank() == hvd.size() - 1:
                failures.clear()
                raise hvd.HorovodInternalError("something has gone wrong on this rank")
            optimizer.zero_grad()
            loss_of(wrapped, state.step, Share(hvd.rank(), hvd.size())).backward()
            optimizer.step()
            state.step += 1
            state.commit()
        dist.destroy_process_group()

    train(hvd.elastic.TorchState(model, optimizer, step=0))
    return flat(model), are_gone


@pytest.mark.parametrize(
    ("options", "register"),
    [
        ({}, _no_hook),
        ({"gradient_as_bucket_view": True}, _hook_of_ours),
        ({"find_unused_parameters": True}, _hook_of_torch),
        ({"static_graph": True}, _no_hook),
    ],
    ids=["plain", "our_hook", "torchs_hook", "static_graph"],
)
def test_ddp_goes_on_in_the_next_world(worlds: Any, options: dict[str, Any], register: Any) -> None:
    world = worlds.of(2)
    (expected, _), _ = world.run(_train_by_ddp, options, register, None)
    for parameters, are_gone in world.run(_train_by_ddp, options, register, 3):
        assert torch.equal(parameters, expected)
        assert are_gone == [True, True], "the first world's wrapper is still there"


def _train_by_kept_wrappers(failing: int | None) -> torch.Tensor:
    """As above, but each wrapper is kept, as by a script that notes it for later."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import ciranda.torch.distributed  # noqa: F401

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    kept: list[Any] = []
    failures = [] if failing is None else [failing]

    @hvd.elastic.run
    def train(state: Any) -> None:
        dist.init_process_group("ciranda")
        kept.append(DistributedDataParallel(model, bucket_cap_mb=0.0001))
        while state.step < STEPS:
            if state.step in failures and hvd.rank() == hvd.size() - 1:
                failures.clear()
                raise hvd.HorovodInternalError("something has gone wrong on this rank")
            optimizer.zero_grad()
            loss_of(kept[-1], state.step, Share(hvd.rank(), hvd.size())).backward()
            optimizer.step()
            state.step += 1
            state.commit()
        for wrapper in kept[:-1]:
            with pytest.raises(NotInitializedError, match="wrap the model again"):
                loss_of(wrapper, 0, Share())
        dist.destroy_process_group()

    train(hvd.elastic.TorchState(model, optimizer, step=0))
    return flat(model)


def test_a_wrapper_that_is_kept_does_not_disturb_the_next(worlds: Any) -> None:
    world = worlds.of(2)
    expected, _ = world.run(_train_by_kept_wrappers, None)
    for parameters in world.run(_train_by_kept_wrappers, 3, timeout=60):
        assert torch.equal(parameters, expected)


def _check_groups_end() -> None:
    import torch.distributed as dist

    import ciranda.torch.distributed  # noqa: F401

    groups: list[Any] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        for group in groups:
            with pytest.raises(NotInitializedError, match="has ended with the world in which it was formed"):
                group.allreduce([torch.ones(2)])
            with pytest.raises(NotInitializedError, match="init_process_group"):
                group.send([torch.ones(2)], 1 - hvd.rank())
        assert not dist.is_initialized()
        dist.init_process_group("ciranda")
        dist.all_reduce(torch.ones(2))
        if not groups:
            groups.extend([dist.group.WORLD, dist.new_group([0, 1])])
            raise hvd.HorovodInternalError("something has gone wrong on all ranks")

    train(hvd.elastic.TorchState())
    dist.destroy_process_group()


def test_groups_end_with_their_world(worlds: Any) -> None:
    worlds.of(2).run(_check_groups_end)
