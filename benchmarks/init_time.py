"""How long it takes to join a world and to leave it again.

ciranda run --no-prefix -np 4 python benchmarks/init_time.py
"""

from __future__ import annotations

import argparse
import time

from measuring import gather_ms

import ciranda


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=30)
    args = parser.parse_args()
    moments: dict[str, list[int]] = {"start": [], "joined": [], "leaving": [], "left": []}
    for _ in range(args.repetitions + 1):
        moments["start"].append(time.perf_counter_ns())
        ciranda.init()
        moments["joined"].append(time.perf_counter_ns())
        ciranda.barrier()
        moments["leaving"].append(time.perf_counter_ns())
        ciranda.shutdown()
        moments["left"].append(time.perf_counter_ns())
    ciranda.init()
    # The first has the ranks' own start in it.
    kept = {name: values[1:] for name, values in moments.items()}
    for what, begin, end in (
        ("init()", "start", "joined"),
        ("shutdown()", "leaving", "left"),
        ("both", "start", "left"),
    ):
        timing = gather_ms(kept[begin], kept[end], what)
        if ciranda.rank() == 0:
            print(f"{ciranda.size()} ranks, {what:10}: median {timing.median:7.2f} ms, min {timing.min:7.2f} ms")
    ciranda.shutdown()


if __name__ == "__main__":
    main()
