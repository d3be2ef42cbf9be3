"""The counters of ranks as OpenMetrics text: for Prometheus, and for node_exporter's textfile collector. Pure.

A rank has at most 200 series: a collective or a path has some once it is used, and of the ranks that others wait for,
the worst are named. No series is named after a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MOST_LAST_RANKS = 32  # of each rank's waits

Counters = Mapping[str, Any]
#: Labels beside those of the rank, and a value.
Sample = tuple[Mapping[str, str], float]


class _Family(NamedTuple):
    name: str
    kind: str
    unit: str
    help: str


def _one(key: str) -> Any:
    return lambda counters: [({}, counters[key])] if key in counters else []


def _of_collectives(key: str) -> Any:
    def samples(counters: Counters) -> Iterator[Sample]:
        for name, values in counters.get("collectives", {}).items():
            yield {"collective": name}, values[key]

    return samples


def _of_paths(counters: Counters) -> Iterator[Sample]:
    for name, n_calls in counters.get("paths", {}).items():
        yield {"path": name}, n_calls


def _by_last(key: str) -> Any:
    def samples(counters: Counters) -> Iterator[Sample]:
        waits = counters.get(key, {})
        worst = sorted(waits, key=lambda last: -waits[last])[:MOST_LAST_RANKS]
        for last in sorted(worst, key=int):
            yield {"last_rank": last}, waits[last]

    return samples


_FAMILIES = [
    (_Family("ciranda_calls", "counter", "", "Calls of a collective."), _of_collectives("calls")),
    (_Family("ciranda_failed_calls", "counter", "", "Calls that have failed."), _of_collectives("failed")),
    (_Family("ciranda_call_bytes", "counter", "bytes", "Bytes of the tensors of calls."), _of_collectives("bytes")),
    (_Family("ciranda_call_agree_seconds", "counter", "seconds", "From the submission until all ranks agreed."),
     _of_collectives("agree_seconds")),
    (_Family("ciranda_call_move_seconds", "counter", "seconds", "From the agreement until the results were complete."),
     _of_collectives("move_seconds")),
    (_Family("ciranda_path_calls", "counter", "", "Calls by the way in which the ranks agreed."), _of_paths),
    (_Family("ciranda_waited_seconds", "counter", "seconds", "Time in which a call waited for other ranks."),
     _one("waited_seconds")),
    (_Family("ciranda_own_wait_seconds", "counter", "seconds",
             "Time that this rank waited in direct rounds, by the rank that came last."),
     _by_last("own_waits_seconds")),
    (_Family("ciranda_held_up_seconds", "counter", "seconds",
             "Longest wait of a rank in calls that this one coordinated, by the rank that came last."),
     _by_last("held_up_seconds")),
    (_Family("ciranda_steps", "counter", "", "Steps of the training."), _one("steps")),
    (_Family("ciranda_stalls", "counter", "", "Warnings that ranks had waited for long."), _one("stalls")),
    (_Family("ciranda_waiting_calls", "gauge", "", "Calls that wait for other ranks now."), _one("waiting")),
    (_Family("ciranda_resident_memory_bytes", "gauge", "bytes", "Memory that the rank's process uses."),
     _one("memory_bytes")),
    (_Family("ciranda_cpu_seconds", "counter", "seconds", "Time for which the rank's process kept a core busy."),
     _one("cpu_seconds")),
    (_Family("ciranda_up", "gauge", "", "1 for each rank that runs."), _one("up")),
    (_Family("ciranda_world_size", "gauge", "", "Ranks of the world that the rank is in."), _one("size")),
]  # fmt: skip


def to_text(ranks: Sequence[Counters], labels: Mapping[str, str]) -> str:
    """The counters of ranks, each as `read_page` gives them with its rank; ``labels`` are on every series."""
    lines: list[str] = []
    begins = ["{" + _pairs({**labels, "rank": str(counters["rank"])}) for counters in ranks]
    for family, samples_of in _FAMILIES:
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {family.help}")
        name = family.name + ("_total" if family.kind == "counter" else "")
        for counters, begin in zip(ranks, begins, strict=True):
            lines += [
                f"{name}{begin},{_pairs(own)}}} {value}" if own else f"{name}{begin}}} {value}"
                for own, value in samples_of(counters)
            ]
    return "\n".join([*lines, "# EOF", ""])


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join([_pair(name, value) for name, value in labels.items()])


@lru_cache(maxsize=8192)  # a host's ranks have a few hundred, in thousands of series
def _pair(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{escaped}"'
