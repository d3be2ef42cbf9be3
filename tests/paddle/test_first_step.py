"""Ranks that begin with different parameters are told so in the first step."""

from __future__ import annotations

from typing import Any

import first_step_ranks
import pytest
from ranks import Ranks
from test_operators import IS_OLD

pytestmark = pytest.mark.multiprocess


def _train(has_broadcast: bool, own: tuple[int, ...] = ()) -> tuple[int, str]:
    """Train two layers; `own`: those that each rank has of its own."""
    import paddle

    import ciranda.paddle as hvd

    paddle.seed(1 + hvd.rank())
    layers: Any = [paddle.nn.Linear(2, 3), paddle.nn.Linear(3, 1)]
    model = paddle.nn.Sequential(*layers)
    if has_broadcast:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        paddle.optimizer.SGD(0.1, parameters=model.parameters()),
        distributed=[each.name for index in own for each in layers[index].parameters()],
    )
    for number in range(3):
        model(paddle.ones([4, 2])).sum().backward()
        try:
            optimizer.step()
        except hvd.HorovodInternalError as error:
            return number, str(error)
        optimizer.clear_grad()
    return 3, ""


def test_a_forgotten_broadcast(two: Ranks) -> None:
    for n_steps, problem in two.run(_train, False):
        assert n_steps == 0
        assert "DistributedOptimizer: the ranks do not begin with the same parameters" in problem
        assert "call broadcast_parameters(model.state_dict(), root_rank=0)" in problem
        assert "(paddle.float32 [2, 3] here) has other bits on rank" in problem
    assert two.run(_train, True) == [(3, "")] * 2
    assert two.run(_train, False, (0, 1)) == [(3, "")] * 2


@pytest.mark.parametrize("is_old", IS_OLD)
def test_programs(two: Ranks, is_old: bool) -> None:
    for way in first_step_ranks.WAYS:
        for problem, is_as_before in two.run(first_step_ranks.loaded_by_one_rank, way, is_old):
            assert "the ranks do not begin with the same parameters" in problem, (way, problem)
            assert "call broadcast_parameters(program.state_dict(), root_rank=0)" in problem
            assert "tensor 'linear_1.w_0' (paddle.float32 [8, 8] here) has other bits on rank 1" in problem
            assert is_as_before, way
    two.run(first_step_ranks.not_compared, is_old)
    two.run(first_step_ranks.joined_before_the_first_step, is_old)
    for before, after in two.run(first_step_ranks.in_new_worlds, is_old):
        assert before == ""
        assert "others are 'linear_" in after


def test_the_setting_leaves_it_out_of_programs(environment: dict[str, str]) -> None:
    """On one rank, as on all; here one that calls the operators as Python functions."""

    def env_of(rank: int) -> dict[str, str]:
        return {"CIRANDA_CHECK_PARAMETERS": str(rank), **({"CIRANDA_PADDLE_OPS": "py_func"} if rank else {})}

    with Ranks(2, env=environment, env_of=env_of) as ranks:
        for problem, _ in ranks.run(first_step_ranks.loaded_by_one_rank, "gradients", IS_OLD[0]):
            assert problem == ""
