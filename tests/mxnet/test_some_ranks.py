"""Trainers and optimizers of some ranks; gradients that only their division first keeps finite; trainers that end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def _stepped(trainer: Any, param: Any, factor: float, how: str) -> Any:
    from mxnet_ranks import mx

    with mx.autograd.record():
        loss = param.data().sum() * factor
    loss.backward()
    if how == "halves":
        trainer.allreduce_grads()
        trainer.update(1)
    else:
        trainer.step(1, ignore_stale_grad=how == "stale")
    return param.data().asnumpy()


def _outside_of_the_set() -> None:
    """A rank that is not in the set updates with its own gradients."""
    from mxnet_ranks import hvd, mx, np

    pair, rank = hvd.add_process_set([0, 2]), hvd.rank()
    mine = (rank + 1.0) ** 2
    wanted = np.full(2, 1 - (mine if rank == 1 else 5.0))
    options: list[tuple[str, dict[str, Any]]] = [
        ("step", {}),
        ("halves", {"num_groups": 1}),
        ("stale", {"compression": hvd.Compression.fp16}),
    ]
    for how, more in options:
        param = mx.gluon.Parameter("weight", shape=(2,), init="ones")
        param.initialize()
        trainer = hvd.DistributedTrainer([param], "sgd", {"learning_rate": 1.0}, process_set=pair, **more)
        np.testing.assert_array_equal(_stepped(trainer, param, mine, how), wanted, err_msg=how)
    rows = mx.nd.sparse.row_sparse_array((np.full((1, 2), mine), [rank]), shape=(3, 2), dtype="f")
    for gradient in (mx.nd.ones((3, 2)) * mine, rows):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=1.0), process_set=pair)
        weight, before = mx.nd.ones((3, 2)), gradient.tostype("default").asnumpy()
        optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))
        if rank == 1:
            np.testing.assert_array_equal(weight.asnumpy(), 1 - before)
        else:
            everyones = hvd.allgather(mx.nd.array(before[None]), process_set=pair).asnumpy()
            np.testing.assert_array_equal(weight.asnumpy(), 1 - everyones.mean(0))
    hvd.remove_process_set(pair)


def _divided_first() -> None:
    """Gradients whose sum overflows are divided before they are added."""
    from mxnet_ranks import hvd, mx, np

    large = 3e38
    param = mx.gluon.Parameter("large", shape=(2,), init="zeros")
    param.initialize()
    how = {"gradient_predivide_factor": 8.0}
    trainer = hvd.DistributedTrainer([param], "sgd", {"learning_rate": 1 / large}, **how)
    np.testing.assert_allclose(_stepped(trainer, param, large, "step"), -1.0, rtol=1e-5)
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=1 / large), **how)
    weight = mx.nd.zeros((2,))
    optimizer.update(0, weight, mx.nd.ones((2,)) * large, optimizer.create_state(0, weight))
    np.testing.assert_allclose(weight.asnumpy(), -1.0, rtol=1e-5)


def _kvstores() -> None:
    from mxnet_ranks import hvd, mx, raised

    param = mx.gluon.Parameter("weight", shape=(2,))
    param.initialize()
    attempts = {"kvstore": "device", "update_on_kvstore": True, "compression_params": {"type": "2bit"}}
    for name, value in attempts.items():
        error = raised(lambda name=name, value=value: hvd.DistributedTrainer([param], "sgd", **{name: value}))
        assert isinstance(error, ValueError), repr(error)
        assert all(part in str(error) for part in (f"takes no {name}", "no kvstore")), error
    assert isinstance(raised(lambda: hvd.DistributedTrainer([param], "sgd", kvstores=None)), TypeError)
    hvd.DistributedTrainer([param], "sgd", kvstore=None, update_on_kvstore=False)


def test_a_rank_outside_of_the_set(three: Ranks) -> None:
    three.run(_outside_of_the_set)


def test_gradients_are_divided_before_they_are_added(three: Ranks) -> None:
    three.run(_divided_first)


def test_kvstores_are_refused(three: Ranks) -> None:
    three.run(_kvstores)


def test_the_end_after_a_stale_gradient(tmp_path: Path) -> None:
    """The averages of a step that ended with MXNet's warning are done before the program ends."""
    script = tmp_path / "stale.py"
    script.write_text(
        textwrap.dedent("""
        import ciranda.mxnet as hvd
        import mxnet as mx
        hvd.init()
        used, stale = (mx.gluon.Parameter(name, shape=(2,)) for name in ("used", "stale"))
        used.initialize()
        stale.initialize()
        trainer = hvd.DistributedTrainer([used, stale], "sgd")
        with mx.autograd.record():
            loss = used.data().sum()
        loss.backward()
        try:
            trainer.step(1)
        except UserWarning as warning:
            print(str(warning)[:30])
        """)
    )
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Gradient of Parameter `stale`") == 2, done.stdout
    assert "Traceback" not in done.stderr, done.stderr
