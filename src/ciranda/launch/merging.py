"""``ciranda merge``: traces of torch's and JAX's profilers beside the timeline of all ranks. Standard library only.

A profile's times are of the day, by the clock of the rank's host. What time of that clock the axis begins at is in the
timeline, for each rank. Each process of a profile becomes one of the merged trace, below its rank.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ciranda.launch import jax_profile
from ciranda.launch.errors import LaunchError
from ciranda.launch.trace_writer import TraceFile

_PROCESSES = 100  # of a rank's profile at most, between the sort indices of two ranks
_IDS = ("id", "bind_id")

Event = dict[str, Any]


def merge(timeline: Path, profiles: Mapping[int, Path], to: Path) -> None:
    """Write the timeline with these ranks' profiles.

    Raises:
        LaunchError: a file is none of these, or cannot be read or written.
    """
    whole = _read(timeline)
    began = whole.get("otherData", {}).get("ranks_began_epoch_us")
    if began is None:
        raise LaunchError(f"{timeline}: it is no timeline of 'ciranda run --timeline'", exit_code=2)
    shifted = [_Profile(rank, path, began) for rank, path in sorted(profiles.items())]
    file = TraceFile(to)
    try:
        for event in whole["traceEvents"]:
            if event["name"] == "process_sort_index":
                event["args"] = {"sort_index": event["pid"] * _PROCESSES}
            file.put(json.dumps(event))
        number = 1 + max(event["pid"] for event in whole["traceEvents"])
        for profile in shifted:
            for event in profile.events(number):
                file.put(json.dumps(event))
            number += profile.n_processes
        file.complete({**whole["otherData"], "profiles": {str(rank): str(path) for rank, path in profiles.items()}})
    except OSError as error:
        raise LaunchError(f"{to} cannot be written: {error.strerror}") from None
    finally:
        file.close()


class _Profile:
    """What torch.profiler has exported of one rank, or jax.profiler has written."""

    def __init__(self, rank: int, path: Path, began: Mapping[str, float]) -> None:
        if str(rank) not in began:
            raise LaunchError(f"{path}: the timeline has no records of rank {rank}", exit_code=2)
        if path.is_dir():
            trace = jax_profile.trace_in(path)
            if trace is None:
                raise LaunchError(f"{path}: it has no profile that JAX has written", exit_code=2)
            path = trace
        whole = _read(path)
        began_ns = whole.get("baseTimeNanoseconds", jax_profile.began_ns(path))
        if began_ns is None:
            raise LaunchError(
                f"{path}: it is no trace that torch.profiler of torch 2.3 or newer exports, nor one of JAX with its "
                ".xplane.pb in the same folder",
                exit_code=2,
            )
        self._rank = rank
        self._events: list[Event] = whole["traceEvents"]
        self._ahead = began[str(rank)] - began_ns / 1000
        self._processes = list(dict.fromkeys(event["pid"] for event in self._events if "pid" in event))

    @property
    def n_processes(self) -> int:
        return len(self._processes)

    def events(self, number: int) -> Iterator[Event]:
        """Its events on the timeline's axis, whose processes are numbered from there on."""
        numbers = {process: number + at for at, process in enumerate(self._processes)}
        for event in self._events:
            if "pid" not in event:
                continue
            shifted = {**event, "pid": numbers[event["pid"]]}
            if long_name := event.get("args", {}).get("long_name"):  # of JAX's, where the name is a part of it
                shifted["name"] = long_name
            if "ts" in event:
                shifted["ts"] = round(event["ts"] - self._ahead, 3)
            for name in _IDS:
                if name in event:  # ranks count alike
                    shifted[name] = f"{self._rank}:{event[name]}"
            if event["name"] == "process_name":
                shifted["args"] = {"name": f"rank {self._rank}: {event['args']['name']}"}
            if event["name"] == "process_sort_index":
                shifted["args"] = {"sort_index": self._rank * _PROCESSES + 1 + self._processes.index(event["pid"])}
            yield shifted


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        whole = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror or error}", exit_code=2) from None
    except (ValueError, EOFError):
        whole = None
    if not isinstance(whole, dict) or not isinstance(whole.get("traceEvents"), list):
        raise LaunchError(f"{path}: it is no trace", exit_code=2)
    return whole
