"""``run``: the driver's part. It counts slots, and starts a barrier stage with a task for each rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import cloudpickle
from py4j.protocol import Py4JJavaError
from pyspark import BarrierTaskContext, SparkContext

from ciranda.launch.errors import HostsError, LaunchError
from ciranda.launch.hosts import checked_size
from ciranda.launch.sent_function import packed
from ciranda.spark.task import Ended, Wanted, run_in_task

Result = TypeVar("Result")

_SETTLE_SECONDS = 5.0  # for executors to come, after the last that came
_LOOK_SECONDS = 0.1
_MEETING_SECONDS = 60.0  # for tasks and ranks to find each other, or start_timeout if that is more


def run(
    func: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    np: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
    start_timeout: float | None = None,
    network_interface: str | None = None,
    python: str | None = None,
    verbose: bool = False,
) -> list[Result]:
    """Call ``func(*args, **kwargs)`` on ``np`` ranks, one in each task of a barrier stage; results in rank order.

    The function is sent by cloudpickle, and runs in a child of the task. The ranks' output is in the executors' logs.

    Args:
        func: called once on each rank; its result must be picklable.
        args, kwargs: the same for every rank.
        np: the number of ranks; by default ``spark.default.parallelism``.
        env: variables to set for every rank, on top of those of its executor.
        start_timeout: seconds for executors with enough slots to come. By default as long as they keep coming.
        network_interface: the interface to use on every host; several by comma are used together.
        python: the Python of the ranks, by default that of the tasks.
        verbose: print each step, in the log of rank 0's executor.

    Raises:
        HostsError: ``np`` is no possible number.
        LaunchError: there are too few slots, or no SparkContext; or a rank failed, whose traceback is in the message;
            or Spark has ended the stage.
    """
    context = SparkContext._active_spark_context
    if context is None:
        raise LaunchError("there is no SparkContext in this process: make one, or a SparkSession that is not remote")
    size = checked_size(context.defaultParallelism if np is None else np)
    _require_slots(context, size, start_timeout)
    wanted = Wanted(
        payload=packed(func, args, kwargs),
        env=dict(env or {}),
        start_timeout=max(_MEETING_SECONDS, start_timeout or 0.0),
        network_interface=network_interface,
        python=python,
        verbose=verbose,
    )

    def run_task(_records: Iterator[int]) -> Iterator[Ended]:
        return run_in_task(BarrierTaskContext.get(), wanted)

    try:
        (ended,) = context.parallelize(range(size), size).barrier().mapPartitions(run_task).collect()
    except Py4JJavaError as error:
        raise LaunchError(f"Spark has ended the job: {_words(error)}") from error
    if ended.message:
        raise LaunchError(ended.message, ended.exit_code, ended.failure)
    return [cloudpickle.loads(result) for result in ended.results]


def _require_slots(context: Any, size: int, seconds: float | None) -> None:
    """Raise HostsError if there are fewer slots than ranks, which Spark itself would say after ten minutes.

    Executors may still be coming: it waits for ``seconds``, or as long as they do.
    """
    n_slots, now = _slots(context), time.monotonic()
    deadline = now + (_SETTLE_SECONDS if seconds is None else seconds)
    while n_slots < size and not context.master.startswith("local[") and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        before, n_slots = n_slots, _slots(context)
        if n_slots != before and seconds is None:
            deadline = time.monotonic() + _SETTLE_SECONDS
    if n_slots < size:
        raise HostsError(
            f"np={size} is more than the {n_slots} slots of the executors that are there, each with a task of "
            f"{context.getConf().get('spark.task.cpus', '1')} cores: give a smaller np, more executors, or a "
            "start_timeout if more are to come"
        )


def _slots(context: Any) -> int:
    """How many tasks can run at once, as Spark itself counts them for barrier stages."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def _words(error: Py4JJavaError) -> str:
    """Without the frames of Java."""
    lines = str(error.java_exception.getMessage()).splitlines()
    return "\n".join(line for line in lines if not line.startswith("\tat ")).rstrip()
