"""A timeline of this process's collectives, in the format of Chrome's trace viewer (chrome://tracing, Perfetto).

While one is recorded, a `_TracedEngine` stands in the engine's place and notes every call; without one, nothing is in
the way. Rank 0 records. The names are Horovod's: a row for each tensor, as "allreduce.weights"; and in it
NEGOTIATE_ALLREDUCE, from when the collective is handed to the engine until all ranks have done so, and then ALLREDUCE,
until it is done here.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, cast

from ciranda import _basics, _core
from ciranda.errors import InvalidArgumentError

__all__ = ["start_timeline", "stop_timeline"]

_COLLECTIVE_NAMES = {number: name for name, number in _core.COLLECTIVES.items()}
#: How often operations under way are looked at: the precision of their ends.
_POLL_SECONDS = 0.0002


def _now_us() -> float:
    return time.monotonic_ns() / 1000.0


class _Writer:
    """Writes events, one row of the viewer for each name."""

    def __init__(self, path: Path, rank: int, marks_cycles: bool) -> None:
        self._file = path.open("w", buffering=1, encoding="utf-8")  # nothing is left to a forked child to write
        self._lock = threading.Lock()
        self._rank = rank
        self._rows: dict[str, int] = {}
        self._separator = "[\n"
        self._marks_cycles = marks_cycles
        self._last_agreed_us = 0.0
        self._describe("process_name", 0, name=f"rank {rank}")
        # By which times of day can be told: that of the clock's zero.
        start = time.time_ns() / 1000.0 - _now_us()
        self._describe("start_time_since_epoch_in_micros", 0, start_time_since_epoch_in_micros=round(start))

    def _describe(self, what: str, row: int, **values: object) -> None:
        self._write({"name": what, "ph": "M", "pid": self._rank, "tid": row, "args": values})

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(self._separator + json.dumps(event))
        self._separator = ",\n"

    def add(self, collective: str, name: str, begin_us: float, agreed_us: float, end_us: float) -> None:
        """Write one collective. `agreed_us` is 0 where the ranks did not agree to execute it."""
        with self._lock:
            row = self._rows.get(name)
            if row is None:
                row = self._rows[name] = len(self._rows)
                self._describe("thread_name", row, name=name)
            agreed_us = min(max(agreed_us, begin_us), end_us) if agreed_us else end_us
            self._add_span(f"NEGOTIATE_{collective.upper()}", name, row, begin_us, agreed_us)
            if agreed_us < end_us:
                self._mark_cycle(agreed_us)
                self._add_span(collective.upper(), name, row, agreed_us, end_us)

    def _add_span(self, what: str, name: str, row: int, begin_us: float, end_us: float) -> None:
        times = {"ts": begin_us, "dur": end_us - begin_us}
        self._write({"name": what, "ph": "X", "pid": self._rank, "tid": row, **times, "args": {"tensor": name}})

    def _mark_cycle(self, agreed_us: float) -> None:
        """Mark when ranks agreed, once for all that they agreed on together."""
        if self._marks_cycles and agreed_us > self._last_agreed_us:
            self._last_agreed_us = agreed_us
            self._write({"name": "CYCLE_START", "ph": "i", "s": "g", "pid": self._rank, "tid": 0, "ts": agreed_us})

    def close(self) -> None:
        """Complete the file."""
        with self._lock:
            self._file.write("\n]\n")
            self._file.close()


class _TracedEngine:
    """The engine, with every collective noted."""

    def __init__(self, real: _core.Engine, path: Path, marks_cycles: bool) -> None:
        self.real = real
        self._writer = _Writer(path, real.rank, marks_cycles)
        self._under_way: list[tuple[_core.Operation, str, str, float]] = []
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._n_unnamed = 0
        self._watcher = threading.Thread(target=self._watch, name="ciranda-timeline", daemon=True)
        self._watcher.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def _name(self, collective: str, name: str | None) -> str:
        if name is not None:
            return f"{collective}.{name}"
        self._n_unnamed += 1
        return f"{collective}.noname.{self._n_unnamed - 1}"

    def run(
        self,
        collective: int,
        inputs: object,
        outputs: object,
        name: str | None,
        op: int,
        root: int,
        prescale: float,
        postscale: float,
        *rest: Any,
        **more: Any,
    ) -> list[Any]:
        kind, begin = _COLLECTIVE_NAMES[collective], _now_us()
        is_deferrable = False
        operation = self.real.submit(
            collective, inputs, outputs, name, op, root, prescale, postscale, is_deferrable, *rest, **more
        )
        try:
            operation.wait()
        finally:
            self._add(operation, kind, self._name(kind, name), begin)
        return operation.outputs()

    def _add(self, operation: _core.Operation, kind: str, name: str, begin: float) -> None:
        self._writer.add(kind, name, begin, operation.agreed_ns / 1000.0, _now_us())

    def submit(
        self, collective: int, inputs: object, outputs: object, name: str | None, *rest: Any, **more: Any
    ) -> _core.Operation:
        kind, begin = _COLLECTIVE_NAMES[collective], self._begin()
        operation = self.real.submit(collective, inputs, outputs, name, *rest, **more)
        return self._follow(operation, kind, self._name(kind, name), begin)

    def submit_bare(self, collective: int, *rest: Any, **more: Any) -> _core.Operation:
        kind, begin = _COLLECTIVE_NAMES[collective], self._begin()
        operation = self.real.submit_bare(collective, *rest, **more)
        return self._follow(operation, kind, self._name(kind, None), begin)

    def submit_prepared(
        self, prepared: _core.PreparedRequest, tensors: object, weight: float | None = None
    ) -> _core.Operation:
        begin = self._begin()
        operation = self.real.submit_prepared(prepared, tensors, weight)
        return self._follow(operation, "allreduce", self._name("allreduce", prepared.name), begin)

    def _begin(self) -> float:
        self._look()  # the last call of the same name, which is done, must not end after this one has begun
        return _now_us()

    def _follow(self, operation: _core.Operation, kind: str, name: str, begin: float) -> _core.Operation:
        with self._lock:
            self._under_way.append((operation, kind, name, begin))
        return operation

    def _watch(self) -> None:
        while not self._is_stopping.wait(_POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        with self._lock:
            pending = []
            for item in self._under_way:
                operation, kind, name, begin = item
                if operation.poll():
                    self._add(operation, kind, name, begin)
                else:
                    pending.append(item)
            self._under_way = pending

    def stop(self) -> None:
        """Complete the file. What is not done is left out."""
        self._is_stopping.set()
        self._watcher.join()
        self._look()
        self._writer.close()

    def shutdown(self) -> None:
        self.stop()
        self.real.shutdown()


def start_timeline(file_path: str | Path, mark_cycles: bool = False) -> None:
    """Begin to record the collectives of rank 0 in a file; other ranks may call this too, and do nothing.

    The file is complete after `stop_timeline()` or `shutdown()`. With `mark_cycles` it also has a mark at each time at
    which the ranks agreed on what to execute.

    Raises:
        NotInitializedError: (a ValueError) before init().
        InvalidArgumentError: (a ValueError) a timeline is being recorded already, or the file cannot be written.
    """
    engine = _basics.engine()
    if isinstance(engine, _TracedEngine):
        raise InvalidArgumentError("a timeline is being recorded already; call stop_timeline() first")
    if engine.rank != 0:
        return
    try:
        traced = _TracedEngine(engine, Path(file_path), mark_cycles)
    except OSError as error:
        raise InvalidArgumentError(f"the timeline cannot be written to {file_path}: {error.strerror}") from error
    _basics.circle.engine = cast(_core.Engine, traced)


def stop_timeline() -> None:
    """End the timeline and complete its file. Does nothing without one. Raises NotInitializedError before init()."""
    engine: object = _basics.engine()
    if isinstance(engine, _TracedEngine):
        _basics.circle.engine = engine.real
        engine.stop()
