"""Ranks that begin with different parameters are told so in the first step."""

from __future__ import annotations

from typing import Any

import pytest
from ranks import Ranks

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
