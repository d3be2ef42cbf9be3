"""MXNet's other engines, and the ends of processes whose calls are in its queues."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from ranks import Ranks

HERE = Path(__file__).parent
NAIVE = "NaiveEngine"

pytestmark = pytest.mark.multiprocess


def _pushes(order: list[int]) -> None:
    from mxnet_ranks import hvd, mx, raised

    n = hvd.size()
    arrays = [mx.nd.ones((3,)) * (hvd.rank() + index) for index in range(len(order))]
    results = {index: hvd.allreduce(arrays[index], op=hvd.Sum, name=f"push.{index}") for index in order}
    for index, result in results.items():
        assert result.asnumpy()[0] == sum(rank + index for rank in range(n))
    error = raised(lambda: hvd.allreduce(mx.nd.ones((2 + hvd.rank(),)), name="shapes"))
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    assert isinstance(error, mx.base.MXNetError)
    assert hvd.allreduce(mx.nd.ones((3,)), name="after").asnumpy()[0] == 1


def _another_order_fails() -> None:
    """Both ranks hear of both calls, without any setting."""
    from mxnet_ranks import hvd, mx, raised

    hvd.shutdown()
    hvd.init()  # as a script does, after the import
    names = ["a", "b"] if hvd.rank() else ["b", "a"]
    for make in (hvd.allreduce, hvd.allgather):
        error = raised(lambda make=make: [make(mx.nd.ones((3,)), name=name) for name in names])
        assert isinstance(error, hvd.errors.MismatchError), repr(error)
        assert isinstance(error, mx.base.MXNetError)
        assert all(f"'{name}'" in str(error) for name in names), error
    assert hvd.allreduce(mx.nd.ones((3,)), name="after").asnumpy()[0] == 1


def _one_never_comes_to_its_parameters() -> None:
    """Neither to the first initialization, nor to a second one that the other rank makes."""
    from mxnet_ranks import hvd, mx, raised

    met, anew = mx.gluon.nn.Dense(2, prefix="met_"), mx.gluon.nn.Dense(2, in_units=3, prefix="anew_")
    for net in (met, anew):
        net.initialize()
        hvd.broadcast_parameters(net.collect_params())
    anew.weight.data().wait_to_read()
    if hvd.rank() == 1:
        anew.weight.initialize(force_reinit=True)
        error = raised(lambda: met(mx.nd.ones((2, 3))))
    else:
        error = raised(hvd.barrier)
    assert isinstance(error, hvd.errors.CirandaError), repr(error)
    text = f"{error} {hvd.last_error()}"
    assert hvd.rank() == 0 or any(name in text for name in ("met_weight", "met_bias", "anew_weight")), text


@pytest.mark.parametrize("engine", ["ThreadedEngine", NAIVE])
def test_other_engines(engine: str) -> None:
    environment = {"PYTHONPATH": str(HERE), "MXNET_ENGINE_TYPE": engine}
    environment["CIRANDA_STALL_WARNING_SECONDS" if engine == NAIVE else "CIRANDA_STALL_SHUTDOWN_SECONDS"] = "2"
    with Ranks(2, env=environment) as ranks:
        orders = [[0, 1, 2, 3, 4]] * 2 if engine == NAIVE else [[0, 1, 2, 3, 4], [3, 1, 4, 0, 2]]
        for rank in range(2):
            ranks.start(rank, _pushes, orders[rank])
        for rank in range(2):
            ended = ranks.outcome(rank)
            assert ended.error is None, ended.traceback
        ranks.run(_another_order_fails if engine == NAIVE else _one_never_comes_to_its_parameters)


ENDS = {
    "exit": "",
    "shutdown": "hvd.shutdown()",
    "deleted": "del results; hvd.shutdown(); mx.nd.waitall()",
    "sys.exit": "import sys; sys.exit(0)",
}
OTHER_ENDS = ("shutdown", "sys.exit")


@pytest.mark.parametrize("how", ["exit", "deleted", *(pytest.param(how, marks=pytest.mark.slow) for how in OTHER_ENDS)])
def test_the_end_of_a_process(how: str, tmp_path: Path) -> None:
    """Rank 1 never makes the calls of rank 0, which are in MXNet's queues when that ends."""
    script = tmp_path / "ends.py"
    script.write_text(
        textwrap.dedent(f"""
        import ciranda.mxnet as hvd
        import mxnet as mx
        hvd.init()
        x = mx.nd.ones((4,))
        if hvd.rank() == 0:
            results = [hvd.allreduce(x * index, name=str(index)) for index in range(100)]
            results += [result * 2 for result in results]
        else:
            results = []
        try:
            {ENDS[how] or "pass"}
        except hvd.errors.AbortedError as error:
            print("aborted", error)
        """)
    )
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "terminate" not in done.stderr


def _wait(count: int) -> list[str]:
    from mxnet_ranks import hvd, mx, raised

    results = [hvd.allreduce(mx.nd.ones((4,)), name=f"wait.{index}") for index in range(count)]
    errors = [raised(result.asnumpy) for result in results]
    return [type(error).__name__ for error in errors]


def test_a_rank_that_is_killed_with_many_in_flight() -> None:
    count = 1000
    with Ranks(3, env={"PYTHONPATH": str(HERE)}) as ranks:
        ranks.run(_nothing)
        for rank in (0, 2):
            ranks.start(rank, _wait, count)
        time.sleep(0.5)
        ranks.processes[1].kill()
        for rank in (0, 2):
            ended = ranks.outcome(rank)
            assert ended.error is None, ended.traceback
            assert ended.value == ["RanksLostError"] * count
        ranks.is_broken = True


def _nothing() -> None:
    from mxnet_ranks import hvd

    hvd.barrier()
