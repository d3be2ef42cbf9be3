"""What only many steps show: nothing stays behind, and any order of the calls will do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ranks import Ranks, wait_until

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parent)}


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def _steps(count: int) -> float:
    """Return by how many MiB the process has grown since the first fifth."""
    from mxnet_ranks import hvd, mx

    from ciranda.mxnet._plugin import live_calls

    gradients = [mx.nd.ones((256,)) for _ in range(3)]
    before = 0.0
    for step in range(count):
        for index, gradient in enumerate(gradients):
            hvd.allreduce_(gradient, name=f"gradient.{index}", priority=-index)
        mean = hvd.allreduce(gradients[0].sum(), name="mean")
        every = hvd.allgather(mean, name="every")
        assert every.shape == (hvd.size(),)
        if step == count // 5:
            before = _resident_mib()
    mx.nd.waitall()
    wait_until(lambda: live_calls() == 0)
    return _resident_mib() - before


def _in_random_orders(rounds: int) -> None:
    from mxnet_ranks import hvd, mx

    mine = random.Random(hvd.rank())
    for turn in range(rounds):
        order = list(range(100))
        mine.shuffle(order)
        results = {index: hvd.allreduce(mx.nd.full((3,), index), name=f"{turn}.{index}") for index in order}
        assert all(result.asnumpy()[0] == index for index, result in results.items())


def _another_order_over_two_sets(of_lanes: bool) -> None:
    """No coordinator sees both calls, of which each needs ranks 0 and 1: each rank hears of its own."""
    from mxnet_ranks import hvd, mx, raised

    pair = hvd.add_process_set([0, 1])
    other = hvd.global_process_set.lane(1) if of_lanes else pair
    if of_lanes:
        hvd.allreduce(mx.nd.ones((3,)), name="first", process_set=other)  # whose first call makes it
    calls = [("of all", hvd.global_process_set), ("of others", other)]
    name, process_set = calls[hvd.rank() == 1]
    error = raised(lambda: hvd.allreduce(mx.nd.ones((3,)), name=name, process_set=process_set))
    assert isinstance(error, hvd.errors.TimeoutError), repr(error)
    assert isinstance(error, mx.base.MXNetError)
    assert f"'{name}'" in str(error), error


def _another_call() -> None:
    from mxnet_ranks import hvd, mx

    assert hvd.allreduce(mx.nd.ones((3,)), name="after").asnumpy()[0] == 1


@pytest.mark.parametrize("of_lanes", [False, True])
def test_other_orders_over_two_sets_or_lanes_in_the_naive_engine(of_lanes: bool) -> None:
    seconds = {"CIRANDA_STALL_WARNING_SECONDS": "2", "CIRANDA_STALL_SHUTDOWN_SECONDS": "4"}
    with Ranks(3, env={**ENVIRONMENT, **seconds, "MXNET_ENGINE_TYPE": "NaiveEngine"}) as ranks:
        ranks.run(_another_order_over_two_sets, of_lanes)
        ranks.run(_another_call)


def test_ten_thousand_steps_leave_nothing_behind() -> None:
    with Ranks(2, env=ENVIRONMENT) as ranks:
        grown = ranks.run(_steps, 10_000, timeout=200)
        assert max(grown) < 8, grown


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_any_order(n_ranks: int) -> None:
    with Ranks(n_ranks, env=ENVIRONMENT) as ranks:
        ranks.run(_in_random_orders, 10)
