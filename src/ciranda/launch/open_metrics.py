"""The counters of ranks as OpenMetrics text: for Prometheus, and for node_exporter's textfile collector. Pure.

A rank has at most 200 series: a collective or a path has some once it is used, and of the ranks that others wait for,
the worst are named. No series is named after a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Of each rank: whom it waited for, its links, the classes of sizes, the algorithms and the process sets; those with
# most are shown.
MOST_LAST_RANKS = 12
MOST_LINKS = 6
MOST_SIZES = 8
MOST_ALGORITHMS = 6
MOST_SETS = 5

Counters = Mapping[str, Any]
#: The text of the labels beside those of the rank, and the values, by their keys.
Row = tuple[str, Counters]


class _Family(NamedTuple):
    key: str  # of its value in a row
    name: str
    kind: str
    unit: str
    help: str


def _of_rank(counters: Counters) -> Iterator[Row]:
    yield "", counters


def _of_collectives(counters: Counters) -> Iterator[Row]:
    for name, values in counters.get("collectives", {}).items():
        yield _pair("collective", name), values


def _of_paths(counters: Counters) -> Iterator[Row]:
    for name, n_calls in counters.get("paths", {}).items():
        yield _pair("path", name), {"calls": n_calls}


def _of_sizes(counters: Counters) -> Iterator[Row]:
    found = [
        (name, least, of_size)
        for name, values in counters.get("collectives", {}).items()
        for least, of_size in values.get("sizes", {}).items()
    ]
    for name, least, of_size in _most(found, lambda each: each[2]["agree_seconds"] + each[2]["move_seconds"],
                                      MOST_SIZES):  # fmt: skip
        yield f"{_pair('collective', name)},{_pair('bytes_from', least)}", of_size


def _of_algorithms(counters: Counters) -> Iterator[Row]:
    found = counters.get("algorithms", {}).items()
    for name, values in _most(found, lambda each: each[1]["move_seconds"], MOST_ALGORITHMS):
        yield _pair("algorithm", name), values


def _of_sets(counters: Counters) -> Iterator[Row]:
    found = counters.get("process_sets", {}).items()
    for number, values in _most(found, lambda each: each[1]["agree_seconds"] + each[1]["move_seconds"], MOST_SETS):
        yield _pair("process_set", number), values


def _of_links(counters: Counters) -> Iterator[Row]:
    found = counters.get("links", {}).items()
    for peer, values in _most(found, lambda each: each[1]["sent_bytes"] + each[1]["received_bytes"], MOST_LINKS):
        yield _pair("peer", peer), values


def _most(found: Iterable[Any], value: Callable[[Any], float], n: int) -> list[Any]:
    """The n with the greatest values, in the order in which they were."""
    found = list(found)
    if len(found) <= n:
        return found
    chosen = sorted(range(len(found)), key=lambda index: -value(found[index]))[:n]
    return [found[index] for index in sorted(chosen)]


def _of_memory(counters: Counters) -> Iterator[Row]:
    for kind, n_bytes in counters.get("memory_bytes_of", {}).items():
        yield _pair("kind", kind), {"bytes": n_bytes}


def _by_last(key: str) -> Callable[[Counters], Iterator[Row]]:
    def rows(counters: Counters) -> Iterator[Row]:
        for last, ns in _most(counters.get(key, {}).items(), itemgetter(1), MOST_LAST_RANKS):
            yield _pair("last_rank", last), {"seconds": ns / 1e9}

    return rows


#: Families whose series have the same labels, beside what these are.
_GROUPS: list[tuple[Callable[[Counters], Iterator[Row]], list[_Family]]] = [
    (_of_collectives, [
        _Family("calls", "ciranda_calls", "counter", "", "Calls of a collective."),
        _Family("failed", "ciranda_failed_calls", "counter", "", "Calls that have failed."),
        _Family("bytes", "ciranda_call_bytes", "counter", "bytes", "Bytes of the tensors of calls."),
        _Family("agree_seconds", "ciranda_call_agree_seconds", "counter", "seconds",
                "From the submission until all ranks agreed."),
        _Family("move_seconds", "ciranda_call_move_seconds", "counter", "seconds",
                "From the agreement until the results were complete."),
    ]),
    (_of_paths, [
        _Family("calls", "ciranda_path_calls", "counter", "", "Calls by the way in which the ranks agreed."),
    ]),
    (_of_sizes, [
        _Family("calls", "ciranda_size_calls", "counter", "",
                "Calls of a class of sizes, up to four times bytes_from."),
        _Family("bytes", "ciranda_size_bytes", "counter", "bytes",
                "Bytes of the tensors of calls of a class of sizes."),
        _Family("move_seconds", "ciranda_size_move_seconds", "counter", "seconds",
                "From the agreement until the results were complete, of calls of a class of sizes."),
    ]),
    (_of_algorithms, [
        _Family("calls", "ciranda_algorithm_calls", "counter", "", "Calls that an algorithm has carried out."),
        _Family("move_seconds", "ciranda_algorithm_move_seconds", "counter", "seconds",
                "From the agreement until the results were complete, of calls of an algorithm."),
    ]),
    (_of_sets, [
        _Family("calls", "ciranda_process_set_calls", "counter", "", "Calls of a process set that is not the world."),
        _Family("bytes", "ciranda_process_set_bytes", "counter", "bytes",
                "Bytes of the tensors of calls of a process set."),
        _Family("agree_seconds", "ciranda_process_set_agree_seconds", "counter", "seconds",
                "From the submission until all ranks of a process set agreed."),
        _Family("move_seconds", "ciranda_process_set_move_seconds", "counter", "seconds",
                "From the agreement until the results were complete, of calls of a process set."),
    ]),
    (_of_links, [
        _Family("sent_bytes", "ciranda_link_sent_bytes", "counter", "bytes",
                "Bytes that have arrived at another rank."),
        _Family("received_bytes", "ciranda_link_received_bytes", "counter", "bytes",
                "Bytes that have come from another rank."),
        _Family("retries", "ciranda_link_retries", "counter", "",
                "TCP segments that were sent to another rank again."),
        _Family("queued_bytes", "ciranda_link_queued_bytes", "gauge", "bytes",
                "Bytes that have not arrived at another rank yet."),
    ]),
    (_of_memory, [
        _Family("bytes", "ciranda_engine_memory_bytes", "gauge", "bytes",
                "Memory of the engine: slots, kept results, empty()."),
    ]),
    (_by_last("own_waits_ns"), [
        _Family("seconds", "ciranda_own_wait_seconds", "counter", "seconds",
                "Time that this rank waited in direct rounds, by the rank that came last."),
    ]),
    (_by_last("held_up_ns"), [
        _Family("seconds", "ciranda_held_up_seconds", "counter", "seconds",
                "Longest wait of a rank in calls that this one coordinated, by the rank that came last."),
    ]),
    (_of_rank, [
        _Family("waited_seconds", "ciranda_waited_seconds", "counter", "seconds",
                "Time in which a call waited for other ranks."),
        _Family("steps", "ciranda_steps", "counter", "", "Steps of the training."),
        _Family("stalls", "ciranda_stalls", "counter", "", "Warnings that ranks had waited for long."),
        _Family("waiting", "ciranda_waiting_calls", "gauge", "", "Calls that wait for other ranks now."),
        _Family("memory_bytes", "ciranda_resident_memory_bytes", "gauge", "bytes",
                "Memory that the rank's process uses."),
        _Family("cpu_seconds", "ciranda_cpu_seconds", "counter", "seconds",
                "Time for which the rank's process kept a core busy."),
        _Family("core_wait_seconds", "ciranda_core_wait_seconds", "counter", "seconds",
                "Time in which the rank's main thread could have run, but had no core."),
        _Family("throttled_seconds", "ciranda_throttled_seconds", "counter", "seconds",
                "Time for which the limit of its cgroup stopped it."),
        _Family("up", "ciranda_up", "gauge", "", "1 for each rank that runs."),
        _Family("size", "ciranda_world_size", "gauge", "", "Ranks of the world that the rank is in."),
    ]),
]  # fmt: skip


def to_text(ranks: Sequence[Counters], labels: Mapping[str, str]) -> str:
    """The counters of ranks, each as `read_page` gives them with its rank; ``labels`` are on every series."""
    lines: list[str] = []
    begins = [",".join(_pair(*each) for each in {**labels, "rank": str(of["rank"])}.items()) for of in ranks]
    for rows_of, families in _GROUPS:
        rows = [
            (f"{{{begin},{own}}} " if own else f"{{{begin}}} ", values)
            for counters, begin in zip(ranks, begins, strict=True)
            for own, values in rows_of(counters)
        ]
        for family in families:
            lines += _head(family)
            name, key = family.name + ("_total" if family.kind == "counter" else ""), family.key
            lines += [f"{name}{series}{values[key]}" for series, values in rows if key in values]
    return "\n".join([*lines, "# EOF", ""])


def _head(family: _Family) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {family.help}"


@lru_cache(maxsize=8192)  # a host's ranks have a few hundred, in thousands of series
def _pair(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{escaped}"'
