"""Flags that become settings of the engine: one row a flag. Which have an effect, the engine's own table says.

A row names Horovod's variable. The engine's table of settings names it too where Ciranda has such a setting; the flag
then sets it under both names. Where it has not, `instead` says why the flag is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from ciranda import _core
from ciranda.launch import LaunchError

MIB = 1 << 20
LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]

Value = bool | int | float | str
_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class Tunable:
    """One setting: where it stands on the command line and in the configuration file, and what it sets.

    Attributes:
        flag: without its dashes.
        variable: Horovod's name for it, without the prefix.
        kind: bool for a flag without a value, else what its value is read as.
        section, key: where it stands in the configuration file.
        factor: what the value is multiplied by.
        negation: the flag that sets it to 0, where there is one.
        old_flags: earlier names of the flag and of its negation.
        is_seconds: whether it is a time, which Horovod knows in whole seconds.
        instead: what Ciranda does where the engine has no such setting.
    """

    flag: str
    variable: str
    kind: type[bool] | type[int] | type[float] | type[str]
    section: str
    key: str
    help: str
    instead: str = ""
    factor: int = 1
    negation: str | None = None
    old_flags: tuple[str, str] | None = None
    is_seconds: bool = False

    @property
    def dest(self) -> str:
        """Its name among the parsed arguments."""
        return self.flag.replace("-", "_")

    def text(self, value: Value) -> str:
        """`value` as the variable holds it."""
        if isinstance(value, bool):
            return "1" if value else "0"
        if self.is_seconds and float(value).is_integer():
            return str(int(value))
        return str(value * self.factor)  # a factor of 1 leaves a text as it is

    def read(self, value: object) -> Value:
        """`value`, from a configuration file, as its kind. Raises ValueError if it is not of that kind."""
        if self.kind is str:
            return str(value)
        if isinstance(value, bool) == (self.kind is bool) and isinstance(value, int | self.kind):
            return self.kind(value)
        raise ValueError(f"{value!r} is not {_KIND_NAMES[self.kind]}")


_LEVELS = "transports and their levels are chosen by the engine"
_TUNER = "the engine tries what may be fast by a schedule of its own"

TUNABLES = (
    Tunable("fusion-threshold-mb", "FUSION_THRESHOLD", int, "params", "fusion_threshold_mb",
            "the most MiB that travel as one operation", factor=MIB),
    Tunable("cycle-time-ms", "CYCLE_TIME", float, "params", "cycle_time_ms",
            "the length of a cycle", "the engine has no cycle, it starts at once"),
    Tunable("cache-capacity", "CACHE_CAPACITY", int, "params", "cache_capacity",
            "how many names are announced by a number"),
    Tunable("hierarchical-allreduce", "HIERARCHICAL_ALLREDUCE", bool, "params", "hierarchical_allreduce",
            "within hosts first", _LEVELS, negation="no-hierarchical-allreduce"),
    Tunable("hierarchical-allgather", "HIERARCHICAL_ALLGATHER", bool, "params", "hierarchical_allgather",
            "within hosts first", _LEVELS, negation="no-hierarchical-allgather"),
    Tunable("torus-allreduce", "TORUS_ALLREDUCE", bool, "params", "torus_allreduce",
            "rings in two dimensions", _LEVELS, negation="no-torus-allreduce"),
    Tunable("autotune", "AUTOTUNE", bool, "autotune", "enabled", "find what is fast while the job runs",
            negation="no-autotune"),
    Tunable("autotune-log-file", "AUTOTUNE_LOG", str, "autotune", "log_file", "where the autotuner writes", _TUNER),
    Tunable("autotune-warmup-samples", "AUTOTUNE_WARMUP_SAMPLES", int, "autotune", "warmup_samples",
            "samples to leave out at first", _TUNER),
    Tunable("autotune-steps-per-sample", "AUTOTUNE_STEPS_PER_SAMPLE", int, "autotune", "steps_per_sample",
            "steps in a sample", _TUNER),
    Tunable("autotune-bayes-opt-max-samples", "AUTOTUNE_BAYES_OPT_MAX_SAMPLES", int, "autotune",
            "bayes_opt_max_samples", "the most samples to take", _TUNER),
    Tunable("autotune-gaussian-process-noise", "AUTOTUNE_GAUSSIAN_PROCESS_NOISE", float, "autotune",
            "gaussian_process_noise", "how noisy samples are, 0 to 1", _TUNER),
    Tunable("timeline-filename", "TIMELINE", str, "timeline", "filename", "file for the timeline"),
    Tunable("timeline-mark-cycles", "TIMELINE_MARK_CYCLES", bool, "timeline", "mark_cycles",
            "show in the timeline when ranks agreed", negation="no-timeline-mark-cycles"),
    Tunable("stall-check-warning-time-seconds", "STALL_CHECK_TIME_SECONDS", float, "stall_check",
            "warning_time_seconds", "name ranks that were waited for this long", is_seconds=True),
    Tunable("stall-check-shutdown-time-seconds", "STALL_SHUTDOWN_TIME_SECONDS", float, "stall_check",
            "shutdown_time_seconds", "fail what ranks were waited for this long; 0 for never", is_seconds=True),
    Tunable("mpi-threads-disable", "MPI_THREADS_DISABLE", bool, "library_options", "mpi_threads_disable",
            "one thread in MPI", "MPI is not used", negation="no-mpi-threads-disable"),
    Tunable("num-nccl-streams", "NUM_NCCL_STREAMS", int, "library_options", "num_nccl_streams",
            "streams for NCCL", "each GPU has one stream for NCCL"),
    Tunable("thread-affinity", "THREAD_AFFINITY", str, "library_options", "thread_affinity",
            "core of each local rank's background thread", "whoever waits turns the engine, on its own core"),
    Tunable("gloo-timeout-seconds", "GLOO_TIMEOUT_SECONDS", int, "library_options", "gloo_timeout_seconds",
            "time limit of an operation",
            "lost ranks are noticed at once; --stall-check-shutdown-time-seconds limits the rest"),
    Tunable("log-level", "LOG_LEVEL", str, "logging", "level", "least severity to log"),
    Tunable("log-without-timestamp", "LOG_HIDE_TIME", bool, "logging", "without_timestamp",
            "no time in the log", "log lines have no choice of form", negation="log-with-timestamp",
            old_flags=("log-hide-timestamp", "no-log-hide-timestamp")),
)  # fmt: skip


class SettingError(LaunchError, ValueError):
    """A setting is out of its range."""


def refuse(text: str) -> NoReturn:
    """Raise SettingError; with exit code 2, as for other mistakes on the command line."""
    raise SettingError(text, exit_code=2)


def chosen_in(args: Any) -> dict[str, Value]:
    """The settings among parsed arguments, by their names there, that are given."""
    return {tunable.dest: value for tunable in TUNABLES if (value := getattr(args, tunable.dest, None)) is not None}


def engine_settings() -> dict[str, _core.SettingRow]:
    """The engine's settings by Horovod's names."""
    return {row["horovod_name"]: row for row in _core.settings() if row["horovod_name"]}


def environment_of(
    chosen: dict[str, Value], complain: Callable[[str], None], rows: dict[str, _core.SettingRow] | None = None
) -> tuple[dict[str, str], list[str]]:
    """The variables that `chosen` (dest -> value) sets, and remarks about flags that change nothing.

    `complain` is called with the text of an error for a value that is out of the engine's range.
    """
    rows = engine_settings() if rows is None else rows
    env: dict[str, str] = {}
    remarks: list[str] = []
    for tunable, value in _given(chosen):
        variable = f"HOROVOD_{tunable.variable}"
        env[variable] = tunable.text(value)
        row = rows.get(variable)
        if row is not None:
            _check(tunable, value, row, complain)
            env[row["name"]] = env[variable]
        elif value is not False:
            remarks.append(f"--{tunable.flag} ({tunable.instead})")
    return env, remarks


def _given(chosen: dict[str, Value]) -> Iterator[tuple[Tunable, Value]]:
    for tunable in TUNABLES:
        if tunable.dest in chosen:
            yield tunable, chosen[tunable.dest]


def _check(tunable: Tunable, value: Value, row: _core.SettingRow, complain: Callable[[str], None]) -> None:
    lowest, highest = row["lowest"], row["highest"]
    if lowest is None or highest is None or isinstance(value, bool | str):
        return
    if not lowest <= value * tunable.factor <= highest:
        bounds = f"{lowest / tunable.factor:g} to {highest / tunable.factor:g}"
        complain(f"--{tunable.flag} {value}: must be from {bounds}")
