"""`horovod.spark.run`: `ciranda.spark.run` by Horovod's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

try:
    import pyspark
except ImportError as missing:
    raise ImportError(f"horovod.spark needs Spark, which cannot be imported: {missing}", name="pyspark") from None

from ciranda.spark import run as _run

Result = TypeVar("Result")


def run(
    fn: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Result]:
    """Call `fn(*args, **kwargs)` on `num_proc` ranks, in tasks of Spark; the results, in the order of ranks.

    Args:
        fn: called once on each rank; it travels by cloudpickle, and so does what it returns.
        args, kwargs: the same for every rank.
        num_proc: the number of ranks, by default `spark.default.parallelism`.
        start_timeout: seconds for executors with enough slots to come; by default as long as they keep coming.
        env: variables to set for every rank, on top of those of its executor.
        stdout, stderr: refused: the executors' logs have what ranks write.
        verbose: 2 or more says what is done, in the log of rank 0's executor.
        nics: the interface to use, or several.
        executable: the Python of the ranks, by default that of the tasks.
        use_mpi, use_gloo, extra_mpi_args, prefix_output_with_timestamp: accepted, and of no effect.

    Raises:
        ValueError: there are fewer slots than ranks, or `num_proc` is no possible number.
        RuntimeError: a rank failed, whose traceback is in the message; or Spark has ended the job.
    """
    if stdout is not None or stderr is not None:
        raise ValueError("horovod.spark.run: stdout and stderr are not served: the executors' logs have the output")
    return _run(
        fn,
        args,
        kwargs,
        np=num_proc,
        env=env,
        start_timeout=start_timeout,
        network_interface=nics if nics is None or isinstance(nics, str) else ",".join(nics),
        python=executable,
        verbose=verbose >= 2,
    )


def run_elastic(*_args: object, **_kwargs: object) -> NoReturn:
    """Raise NotImplementedError: ranks neither come nor go."""
    raise NotImplementedError(
        "horovod.spark.run_elastic is not served: use horovod.spark.run, and call it again after a lost executor, "
        "with a function that loads the last checkpoint"
    )
