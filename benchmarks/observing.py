"""What it costs to look at 64 ranks of a host: a scrape by Prometheus, and `ciranda top`, in seconds of a core.

The ranks' counters are made up, and change between two looks: each has called five collectives, and waited for all
others. The costs are those of the agent's exporter; and of the agent, the launcher and the screen of `ciranda top`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import struct
import time
from collections.abc import Callable

from ciranda.launch import exporter, open_metrics, page, rates, top
from ciranda.launch.page import RankPage

COLLECTIVES = (0, 1, 2, 3, 4)


def fill(pages: dict[int, RankPage], step: int) -> None:
    n_ranks = len(pages)
    now = time.monotonic_ns()
    for rank, own in pages.items():
        words = [0] * (page.N_BYTES // 8)

        def put(name: str, *values: int, at: int = 0, words: list[int] = words) -> None:
            first = page.FIELDS[name][0] + at
            words[first : first + len(values)] = values

        put("magic", page.MAGIC)
        put("version", page.VERSION)
        for name, value in (("generation", 2), ("pid", os.getpid()), ("rank", rank), ("size", n_ranks)):
            put(name, value)
        put("began_ns", now - 10**11)
        put("steps", step)
        put("waited_ns", step * 10**7)
        put("paths", 0, 0, step, step, step, 0, step)
        for number in COLLECTIVES:
            put("collectives", step, step, 0, 4096 * step, 1000 * step, 2000 * step, at=8 * number)
        put("own_waits_ns", *(step * other for other in range(n_ranks)))
        put("held_up_ns", *(step * other for other in range(n_ranks if rank == 0 else 0)))
        os.pwrite(own._fd, struct.pack(f"={len(words)}Q", *words), 0)


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
    pages = {rank: RankPage(rank) for rank in range(options.ranks)}
    fill(pages, 100)
    shown = exporter._Ranks(pages, dict.fromkeys(pages, os.getpid()))
    labels = {"job": "4af2c0f7ac3fa2c1", "host": "hostA"}
    text = open_metrics.to_text(shown.counters(), labels)
    scrape = cpu_seconds(lambda: open_metrics.to_text(shown.counters(), labels), options.times)
    print(f"scrape of {options.ranks} ranks, {len(text) >> 10} KiB: {scrape * 1000:.1f} ms")

    def look() -> list[dict[str, object]]:
        return [{**own.counters(), **page.use_of(os.getpid()), "runs": True} for own in pages.values()]

    def told() -> rates.Counters:
        of_agent = json.loads(json.dumps(look()))  # as from the agent to the launcher
        whole = [{**each, "host": "hostA", "warning": ""} for each in of_agent]
        return rates.by_rank(json.loads(json.dumps({"counters": whole})))  # and to `ciranda top`

    agent = cpu_seconds(look, options.times)
    passing = cpu_seconds(told, options.times) - agent
    before = told()
    fill(pages, 110)
    after = told()
    computing = cpu_seconds(lambda: rates.rows(before, after), options.times)
    found = rates.rows(before, after)

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=80)
    drawing = cpu_seconds(lambda: console.print(top.screen_of(found, "job", top.View())), options.times)
    parts = {"agent": agent, "passing on": passing, "rates": computing, "drawing": drawing}
    print(f"a look by top: {sum(parts.values()) * 1000:.1f} ms (" +
          ", ".join(f"{name} {seconds * 1000:.1f}" for name, seconds in parts.items()) + ")")  # fmt: skip


if __name__ == "__main__":
    main()
