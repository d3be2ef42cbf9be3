"""What it costs to look at 64 ranks of a host: a scrape by Prometheus, and `ciranda top`, in seconds of a core.

The ranks' counters are made up, and change between two looks: each has called five collectives, one of them in calls
of four sizes, by two algorithms; has waited for all others, has a link with each, and is in two calls. The processes
are real, and sleep. The costs are those of the agent's exporter; and of the agent, the launcher and the screen of
`ciranda top`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ciranda.launch import exporter, open_metrics, page, rates, top
from ciranda.launch.page import RankPage
from ciranda.launch.process_signs import Signs

COLLECTIVES = (0, 1, 2, 3, 4)
SIZES = (1, 4, 8, 11)  # of the first of them
ALGORITHMS = (b"shm one-shot", b"ring")


def fill(pages: dict[int, RankPage], pids: dict[int, int], step: int) -> None:
    n_ranks = len(pages)
    now = time.monotonic_ns()
    for rank, own in pages.items():
        words = [0] * (page.N_BYTES // 8)

        def put(name: str, *values: int, at: int = 0, words: list[int] = words) -> None:
            first = page.FIELDS[name][0] + at
            words[first : first + len(values)] = values

        put("magic", page.MAGIC)
        put("version", page.VERSION)
        for name, value in (("generation", 2), ("pid", pids[rank]), ("rank", rank), ("size", n_ranks)):
            put(name, value)
        put("began_ns", now - 10**11)
        put("steps", step)
        put("waited_ns", step * 10**7)
        put("paths", 0, 0, step, step, step, 0, step)
        for number in COLLECTIVES:
            for size in SIZES if number == COLLECTIVES[0] else SIZES[:1]:
                put("calls", step, step, 0, 4096 * step, 1000 * step, 2000 * step, at=8 * (16 * number + size))
        for number, algorithm in enumerate(ALGORITHMS):
            called = struct.unpack("=3Q", algorithm.ljust(24, b"\0"))
            put("algorithms", *called, step, 4096 * step, 1000 * step, at=8 * number)
        put("own_waits_ns", *(step * 123_457 * other for other in range(n_ranks)))
        put("held_up_ns", *(step * 123_457 * other for other in range(n_ranks if rank == 0 else 0)))
        put("links", *(step * (other + 1) * 1000 * (number < 2) for other in range(n_ranks) for number in range(4)))
        put("n_in_flight", 2)
        put("shown_used", 4)
        for entry, name in enumerate((b"layer.12.weight", b"layer.12.bias")):
            text = struct.unpack("=10Q", name.ljust(80, b"\0"))
            put("shown", 2 * step, now - 10**9, 0, len(name) << 32, 0, 4096, *text, at=16 * entry)
        os.pwrite(own._fd, struct.pack(f"={len(words)}Q", *words), 0)


@contextmanager
def sleeping(n_ranks: int) -> Iterator[dict[int, int]]:
    """So many processes, by rank."""
    pids = {}
    for rank in range(n_ranks):
        pids[rank] = os.fork()
        if pids[rank] == 0:
            signal.pause()
            os._exit(0)
    try:
        yield pids
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def cpu_seconds(work: Callable[[], object], times: int) -> float:
    """The least of several: what else runs here makes it longer only."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    with sleeping(options.ranks) as pids:
        measure(pids, options.times)


def measure(pids: dict[int, int], times: int) -> None:
    pages = {rank: RankPage(rank) for rank in pids}
    fill(pages, pids, 100)
    shown = exporter._Ranks(pages, pids)
    labels = {"job": "4af2c0f7ac3fa2c1", "host": "hostA"}
    text = open_metrics.to_text(shown.counters(), labels)
    reading = cpu_seconds(shown.counters, times)
    scrape = cpu_seconds(lambda: open_metrics.to_text(shown.counters(), labels), times)
    print(f"scrape of {len(pids)} ranks, {len(text) >> 10} KiB: {scrape * 1000:.1f} ms ({reading * 1000:.1f} reading)")

    signs = Signs()

    def look() -> list[dict[str, object]]:
        return [{**own.totals(), **signs.of(pids[rank], is_waiting=False), "runs": True} for rank, own in pages.items()]

    def told() -> rates.Counters:
        of_agent = json.loads(json.dumps(look()))  # as from the agent to the launcher
        whole = [{**each, "host": "hostA", "warning": ""} for each in of_agent]
        return rates.by_rank(json.loads(json.dumps({"counters": whole})))  # and to `ciranda top`

    agent = cpu_seconds(look, times)
    passing = cpu_seconds(told, times) - agent
    before = told()
    fill(pages, pids, 110)
    after = told()
    computing = cpu_seconds(lambda: rates.rows(before, after), times)
    found = rates.rows(before, after)

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=80)
    drawing = cpu_seconds(lambda: console.print(top.screen_of(found, "job", top.View())), times)
    parts = {"agent": agent, "passing on": passing, "rates": computing, "drawing": drawing}
    spent = sum(parts.values())
    seconds = top.seconds_for(len(pids))
    print(f"a look by top: {spent * 1000:.1f} ms (" +
          ", ".join(f"{name} {seconds * 1000:.1f}" for name, seconds in parts.items()) +
          f"), every {seconds:.1f} s: {spent / seconds:.2%} of a core")  # fmt: skip


if __name__ == "__main__":
    main()
