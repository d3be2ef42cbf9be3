"""The counters of ranks as OpenMetrics text: for Prometheus, and for node_exporter's textfile collector. Pure.

A rank has at most 200 series: a collective or a path has some once it is used, and of the ranks that others wait for,
the worst are named. No series is named after a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Of each rank: whom it waited for, its links, the classes of sizes and the algorithms; those with most are shown.
MOST_LAST_RANKS = 16
MOST_LINKS = 8
MOST_SIZES = 8
MOST_ALGORITHMS = 6

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


def _of_sizes(key: str) -> Any:
    def samples(counters: Counters) -> Iterator[Sample]:
        found = [
            (name, least, of_size)
            for name, values in counters.get("collectives", {}).items()
            for least, of_size in values.get("sizes", {}).items()
        ]
        for name, least, of_size in _most(found, lambda each: each[2]["agree_seconds"] + each[2]["move_seconds"],
                                          MOST_SIZES):  # fmt: skip
            yield {"collective": name, "bytes_from": least}, of_size[key]

    return samples


def _of_algorithms(key: str) -> Any:
    def samples(counters: Counters) -> Iterator[Sample]:
        found = counters.get("algorithms", {}).items()
        for name, values in _most(found, lambda each: each[1]["move_seconds"], MOST_ALGORITHMS):
            yield {"algorithm": name}, values[key]

    return samples


def _of_links(key: str) -> Any:
    def samples(counters: Counters) -> Iterator[Sample]:
        found = counters.get("links", {}).items()
        for peer, values in _most(found, lambda each: each[1]["sent_bytes"] + each[1]["received_bytes"], MOST_LINKS):
            yield {"peer": peer}, values[key]

    return samples


def _most(found: Iterable[Any], value: Callable[[Any], float], n: int) -> list[Any]:
    """The n with the greatest values, in the order in which they were."""
    found = list(found)
    chosen = sorted(range(len(found)), key=lambda index: -value(found[index]))[:n]
    return [found[index] for index in sorted(chosen)]


def _of_memory(counters: Counters) -> Iterator[Sample]:
    for kind, n_bytes in counters.get("memory_bytes_of", {}).items():
        yield {"kind": kind}, n_bytes


def _by_last(key: str) -> Any:
    def samples(counters: Counters) -> Iterator[Sample]:
        for last, seconds in _most(counters.get(key, {}).items(), lambda each: each[1], MOST_LAST_RANKS):
            yield {"last_rank": last}, seconds

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
    (_Family("ciranda_size_calls", "counter", "", "Calls of a class of sizes, up to four times bytes_from."),
     _of_sizes("calls")),
    (_Family("ciranda_size_bytes", "counter", "bytes", "Bytes of the tensors of calls of a class of sizes."),
     _of_sizes("bytes")),
    (_Family("ciranda_size_move_seconds", "counter", "seconds",
             "From the agreement until the results were complete, of calls of a class of sizes."),
     _of_sizes("move_seconds")),
    (_Family("ciranda_algorithm_calls", "counter", "", "Calls that an algorithm has carried out."),
     _of_algorithms("calls")),
    (_Family("ciranda_algorithm_move_seconds", "counter", "seconds",
             "From the agreement until the results were complete, of calls of an algorithm."),
     _of_algorithms("move_seconds")),
    (_Family("ciranda_link_sent_bytes", "counter", "bytes", "Bytes that have arrived at another rank."),
     _of_links("sent_bytes")),
    (_Family("ciranda_link_received_bytes", "counter", "bytes", "Bytes that have come from another rank."),
     _of_links("received_bytes")),
    (_Family("ciranda_link_retries", "counter", "", "TCP segments that were sent to another rank again."),
     _of_links("retries")),
    (_Family("ciranda_link_queued_bytes", "gauge", "bytes", "Bytes that have not arrived at another rank yet."),
     _of_links("queued_bytes")),
    (_Family("ciranda_engine_memory_bytes", "gauge", "bytes", "Memory of the engine: slots, kept results, empty()."),
     _of_memory),
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
    (_Family("ciranda_core_wait_seconds", "counter", "seconds",
             "Time in which the rank's main thread could have run, but had no core."), _one("core_wait_seconds")),
    (_Family("ciranda_throttled_seconds", "counter", "seconds", "Time for which the limit of its cgroup stopped it."),
     _one("throttled_seconds")),
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
