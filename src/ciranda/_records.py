"""This process's calls, recorded while the agent of `ciranda run` asks: for a timeline that is switched on late.

The agent asks as for stacks (`ciranda._stacks`), many times a second; each time a thread of the engine takes the GIL
and appends what was recorded since to the agent's file. The layout of that is `cpp/observe/binary_format.hpp`'s;
without element types, which the engine does not tell Python.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any

from ciranda import _basics, _core, _spans
from ciranda.launch import record_file
from ciranda.launch.page import PATHS

_ENTRY = struct.Struct("=10Q")
_NAME = struct.Struct("=QQ64s")
_NAME_BYTES = 64
_OF_COLLECTIVE = _core.COLLECTIVES
_OF_PATH = {name: number for number, name in enumerate(PATHS)}


class _Calls:
    """What is being recorded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.engine = _basics.engine()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._recording = self.engine.record()
        self._numbers: dict[str, int] = {}
        self._n_lost = 0
        self._steps: list[tuple[int, int]] = []
        _spans.profiler.listen(self._on_step)
        epoch_us = (time.time_ns() - time.monotonic_ns()) // 1000
        begin = (record_file.MAGIC, record_file.VERSION, self.engine.rank, self.engine.size, 0, epoch_us)
        self._write([_entry(*begin)])

    def _on_step(self, number: int) -> None:
        self._steps.append((number, time.monotonic_ns()))

    def write(self) -> None:
        """Append what was recorded since."""
        steps, self._steps = self._steps, []
        entries = [_entry(record_file.STEP, *step) for step in steps]
        for row in self._recording.read():
            self._add(row, entries)
        if self._recording.n_lost > self._n_lost:
            entries.append(_entry(record_file.LOST, self._recording.n_lost - self._n_lost, time.monotonic_ns()))
            self._n_lost = self._recording.n_lost
        self._write(entries)

    def _add(self, row: tuple[Any, ...], entries: list[bytes]) -> None:
        name, collective, path, outcome, n_bytes, process_set, lane, times = row
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers)
            text = name.encode("utf-8", "replace")
            head = (record_file.NAME, number | len(text) << 32)
            entries += [_NAME.pack(*head, text[at : at + _NAME_BYTES]) for at in range(0, len(text), _NAME_BYTES)]
        first = record_file.CALL | _OF_COLLECTIVE[collective] << 8 | _OF_PATH[path] << 16 | outcome << 24
        entries.append(_ENTRY.pack(first, number | lane << 32, process_set, n_bytes, *times))

    def _write(self, entries: list[bytes]) -> None:
        data = b"".join(entries)
        while data:
            data = data[os.write(self._file, data) :]

    def end(self) -> None:
        """Append the rest, and record no more."""
        self.write()
        self._recording.stop()
        _spans.profiler.listen(None)
        os.close(self._file)


def _entry(*words: int) -> bytes:
    return _ENTRY.pack(*words, *[0] * (record_file.N_WORDS - len(words)))


class _State:
    calls: _Calls | None = None


def on_request(path: str, is_last: bool) -> None:
    """Append to the file what was recorded since the last request; the first begins. Nothing without a world."""
    calls = _State.calls
    if calls is not None and (calls.path != path or calls.engine is not _basics.world.engine):
        calls.end()
        calls = None
    if calls is None and not is_last and _basics.world.engine is not None:
        calls = _Calls(path)
    if calls is not None and is_last:
        calls.end()
        calls = None
    elif calls is not None:
        calls.write()
    _State.calls = calls
