"""`ciranda.spark.run`, and `horovod.spark.run`, on a real Spark: a master and two executors of two cores."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
import sent
from pyspark import SparkContext
from pyspark.sql import SparkSession
from sent import EXAMPLES, digits_task, run_within, total, until

import ciranda
from ciranda.launch import HostsError, LaunchError
from ciranda.spark import run

for module in (sys.modules[__name__], sent):  # ranks do not import the tests
    cloudpickle.register_pickle_by_value(module)

QUIET = {"spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.ui.showConsoleProgress": "false"}


@pytest.fixture(scope="module", autouse=True)
def context() -> Iterator[SparkContext]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local-cluster[2,2,1024]").config(map=QUIET).getOrCreate()
    yield session.sparkContext
    session.stop()


def pids_in(folder: Path, count: int) -> list[int]:
    """Wait until so many ranks have left their numbers in a folder."""
    until(lambda: sum(bool(path.read_text(encoding="ascii")) for path in folder.glob("rank-*")) == count, 120)
    return [int(path.read_text(encoding="ascii")) for path in folder.glob("rank-*")]


def stay(folder: str) -> None:
    ciranda.init()
    Path(folder, f"rank-{ciranda.rank()}").write_text(str(os.getpid()), encoding="ascii")
    while True:
        time.sleep(0.1)


def test_results_come_in_the_order_of_ranks_of_all_slots_by_default(context: SparkContext) -> None:
    until(lambda: context.defaultParallelism == 4)  # both executors have come

    def numbers() -> tuple[int, ...]:
        ciranda.init()
        return ciranda.rank(), ciranda.size(), ciranda.local_rank(), ciranda.local_size(), ciranda.cross_size()

    assert run(numbers) == [(rank, 4, rank, 4, 1) for rank in range(4)]


def test_arguments_and_variables() -> None:
    assert (
        run(lambda a, *, b: (a, b, os.environ["SEEN"]), (1,), {"b": 2}, np=2, env={"SEEN": "yes"})
        == [(1, 2, "yes")] * 2
    )


def test_large_arguments_and_results() -> None:
    value = os.urandom(3 << 20)
    assert run(lambda given: given, (value,), np=2) == [value] * 2


def test_ranks_are_children_that_import_what_tasks_can(context: SparkContext, tmp_path: Path) -> None:
    module = tmp_path / "only_by_spark.py"
    module.write_text("NUMBER = 5\n", encoding="ascii")
    context.addPyFile(str(module))
    assert run(lambda: importlib.import_module("only_by_spark").NUMBER, np=2) == [5, 5]


@pytest.mark.parametrize("culprit", [0, 1])
def test_what_a_rank_raises_is_the_error(culprit: int) -> None:
    def fails() -> None:
        ciranda.init()
        if ciranda.rank() == culprit:
            raise ValueError("seen by the driver")
        ciranda.allreduce(1.0, name="waits")

    with pytest.raises(LaunchError, match=rf"rank {culprit} on .*/task-{culprit} failed first: exit code 1") as caught:
        run(fails, np=2)
    assert "Traceback (most recent call last)" in str(caught.value)
    assert str(caught.value).endswith("ValueError: seen by the driver")
    assert run(total, np=2) == [2.0, 2.0]


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_is_killed_ends_the_others(culprit: int) -> None:
    def dies() -> None:
        ciranda.init()
        if ciranda.rank() == culprit:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(0.1)

    with pytest.raises(LaunchError, match=rf"rank {culprit} on .* failed first: killed by SIGKILL") as caught:
        run(dies, np=2)
    assert caught.value.exit_code == 137


def test_a_function_that_exits_is_an_error() -> None:
    with pytest.raises(LaunchError, match="failed first: exit code 3") as caught:
        run(lambda: sys.exit(3), np=2)
    assert caught.value.exit_code == 3
    with pytest.raises(LaunchError, match="the function must return, not exit"):
        run(lambda: sys.exit(0), np=2)


class Unpicklable:
    def __reduce__(self) -> Any:
        return _fail_to_load, ()


def _fail_to_load() -> None:
    raise RuntimeError("does not unpickle")


def test_what_does_not_unpickle_is_an_error() -> None:
    with pytest.raises(LaunchError, match="does not unpickle"):
        run(lambda value: value, (Unpicklable(),), np=2)


def test_more_ranks_than_slots_and_none_at_all() -> None:
    with pytest.raises(HostsError, match="np=5 is more than the 4 slots"):
        run(total, np=5, start_timeout=0.5)
    with pytest.raises(HostsError, match="1 or more"):
        run(total, np=0)


def test_two_jobs_at_once_are_apart() -> None:
    results: dict[int, list[float]] = {}
    threads = [threading.Thread(target=lambda at: results.update({at: run(total, np=2)}), args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [2.0, 2.0], 1: [2.0, 2.0]}


def test_ciranda_run_within_a_rank_is_a_job_of_its_own() -> None:
    assert run(run_within, np=2) == [["0 2.0", "1 2.0", ""]] * 2


def test_nothing_is_left_of_a_job_that_spark_cancels(context: SparkContext, tmp_path: Path) -> None:
    errors: list[LaunchError] = []

    def start() -> None:
        try:
            run(stay, (str(tmp_path),), np=2)
        except LaunchError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    pids = pids_in(tmp_path, 2)
    context.cancelAllJobs()
    thread.join()
    assert "Spark has ended the job" in str(errors[0])
    assert "cancelled" in str(errors[0])
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_the_secret_is_in_no_environment_and_no_log(context: SparkContext) -> None:
    def secret() -> tuple[str, bytes, str]:
        environ = Path("/proc/self/environ").read_bytes() + repr(dict(os.environ)).encode()
        return Path(os.environ["CIRANDA_SECRET_FILE"]).read_text(encoding="ascii"), environ, os.getcwd()

    (text, environ, folder), _ = run(secret, np=2)
    assert len(text) == 64
    assert text.encode() not in environ
    logs = [path for path in Path(folder).parent.rglob("*") if path.name in ("stdout", "stderr")]
    assert logs
    assert [str(path) for path in logs if text.encode() in path.read_bytes()] == []


def test_a_lost_executor_ends_the_job_and_the_next_one_runs(tmp_path: Path) -> None:
    def loses_an_executor() -> None:
        ciranda.init()
        ciranda.barrier()
        if ciranda.rank() == 3:
            process = psutil.Process()
            while "java" not in process.name():
                process = process.parent()
            process.kill()
        stay(str(tmp_path))

    with pytest.raises(LaunchError, match=r"(?s)Spark has ended the job: .*ExecutorLostFailure"):
        run(loses_an_executor, np=4)
    left = [int(path.read_text(encoding="ascii")) for path in tmp_path.glob("rank-*")]
    until(lambda: not any(psutil.pid_exists(pid) for pid in left))
    assert run(total, np=4, start_timeout=120) == [4.0] * 4


def test_horovods_run_and_what_is_refused() -> None:
    import horovod.spark

    assert horovod.spark.run(lambda a, b: (a, b), (1,), {"b": 2}, num_proc=2, verbose=2, use_gloo=True) == [(1, 2)] * 2
    with pytest.raises(ValueError, match="np=5 is more"):
        horovod.spark.run(total, num_proc=5, start_timeout=0.5)
    with pytest.raises(ValueError, match="logs"):
        horovod.spark.run(total, stdout=sys.stdout)
    with pytest.raises(NotImplementedError, match="last checkpoint"):
        horovod.spark.run_elastic(total)
    for part in ("common", "keras", "torch", "lightning"):
        with pytest.raises(ImportError, match=rf"^horovod\.spark\.{part} is not available.*TorchDistributor"):
            importlib.import_module(f"horovod.spark.{part}")


def test_nothing_is_left_of_a_driver_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pyspark.sql import SparkSession
SparkSession.builder.master("local[2]").config(map={QUIET!r}).getOrCreate()
import test_spark
from ciranda.spark import run
run(test_spark.stay, ({str(tmp_path)!r},), np=2)
"""
    driver = subprocess.Popen([sys.executable, "-c", script])
    try:
        pids = pids_in(tmp_path, 2)
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_a_training_has_the_parameters_of_ciranda_run() -> None:
    train = digits_task().train_here
    assert run(train, np=4) == ciranda.launch.run(train, np=4)


def test_the_example_has_the_parameters_of_ciranda_run_also_by_torch_distributor() -> None:
    command = [sys.executable, str(EXAMPLES / "spark" / "digits.py"), "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    expected = ciranda.launch.run(digits_task().train_here, np=2)
    lines = [line for line in done.stdout.splitlines() if "sha256" in line]
    assert lines == [f"{way}: 2 ranks, sha256 {expected[0]}" for way in ("run", "TorchDistributor")]
