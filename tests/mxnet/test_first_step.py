"""Ranks that begin with different parameters are told so in the first step."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

TOLD = "the ranks do not begin with the same parameters; call broadcast_parameters("


def _train(module: str, has_broadcast: bool) -> tuple[int, str, list[str]]:
    """Train a network of Gluon whose first forward pass makes some of its parameters; with statistics of its own."""
    import importlib
    import warnings

    import mxnet as mx

    hvd = importlib.import_module(module)
    mx.random.seed(1 + hvd.rank())
    net = mx.gluon.nn.Sequential(prefix="net_")
    with net.name_scope():  # names that do not depend on what other tests have made
        net.add(mx.gluon.nn.Dense(3), mx.gluon.nn.BatchNorm(), mx.gluon.nn.Dense(1, in_units=3))
    net.initialize(mx.init.Uniform(1.0))
    parameters = net.collect_params()
    if has_broadcast:
        hvd.broadcast_parameters(parameters, root_rank=0)
    trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 0.1})
    n_steps = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for _ in range(3):
                with mx.autograd.record():
                    loss = net(mx.nd.random.uniform(shape=(4, 2)) * (1 + hvd.rank())).sum()
                loss.backward()
                trainer.step(4)
                n_steps += 1
        except hvd.HorovodInternalError as error:
            return n_steps, str(error), []
    return n_steps, "", [str(each.message) for each in caught if TOLD in str(each.message)]


def test_a_trainer_after_a_forgotten_broadcast(three: Ranks) -> None:
    for n_steps, problem, _ in three.run(_train, "ciranda.mxnet", False):
        assert n_steps == 0
        assert f"DistributedTrainer: {TOLD}" in problem
        assert "'net_dense0_weight' (float32 [3, 2] here) has other bits on ranks 1, 2 than on rank 0" in problem
    assert three.run(_train, "ciranda.mxnet", True) == [(3, "", [])] * 3


def test_horovod_scripts_are_warned_once(three: Ranks) -> None:
    pytest.importorskip("horovod.mxnet")
    for n_steps, problem, warned in three.run(_train, "horovod.mxnet", False):
        assert (n_steps, problem, len(warned)) == (3, "", 1)


def _update(shift: int) -> str:
    """The optimizer of the Module API, by itself."""
    import mxnet as mx

    import ciranda.mxnet as hvd

    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.1))
    weights = [mx.nd.ones(3), mx.nd.ones(2) + shift * hvd.rank()]
    try:
        for _ in range(2):
            for index, weight in enumerate(weights):
                optimizer.update(index, weight, mx.nd.ones(weight.shape), optimizer.create_state(index, weight))
            mx.nd.waitall()
    except hvd.HorovodInternalError as error:
        return str(error)
    return ""


def test_an_optimizer_after_a_forgotten_broadcast(three: Ranks) -> None:
    for problem in three.run(_update, 1):
        assert f"DistributedOptimizer: {TOLD}" in problem
        assert "tensor '1' (float32 [2] here) has other bits" in problem
    assert three.run(_update, 0) == [""] * 3
