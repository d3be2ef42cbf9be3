"""Holds a run of peers.py against an older one of the same kind of machine.

    python benchmarks/compare.py old.json new.json

Absolute times say little on another day, so what is compared is the ratio to each peer, and that within the noise of
both runs: the spread of their times. A ratio counts as lost or won if it moved by more than that. The exit code is 1
only where more than `--fail-at` was lost (2: a call takes twice as long, beside the same peer, as it did).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distances import UNKNOWN
from peers import distance_of

from ciranda.bench.plan import format_size

_LEAST_NOISE = 0.1  # nothing smaller than this is news


@dataclass(frozen=True)
class Ratio:
    """A peer's time over Ciranda's, in one run; noise is relative."""

    value: float
    noise: float


@dataclass(frozen=True)
class Change:
    """What became of a ratio. loss: 2 where Ciranda takes twice as long as it did, 0.5 where half."""

    name: str
    old: Ratio
    new: Ratio

    @property
    def loss(self) -> float:
        return self.old.value / self.new.value

    @property
    def bound(self) -> float:
        """The factor that noise alone may make."""
        return 1 + max(_LEAST_NOISE, math.hypot(self.old.noise, self.new.noise))

    @property
    def verdict(self) -> str:
        if self.loss > self.bound:
            return "lost"
        return "won" if self.loss < 1 / self.bound else ""


def ratios(results: dict[str, Any]) -> Iterator[tuple[str, Ratio]]:
    """Every ratio of a run of peers.py, by what it is of."""
    for run in results["runs"]:
        for row in run["rows"]:
            ours = row["systems"]["ciranda"]
            for peer, theirs in row["systems"].items():
                if peer == "ciranda":
                    continue
                what = f"{row['collective']} {format_size(row['n_bytes'])}"
                if (distance := distance_of(row)) != UNKNOWN:
                    what += f", {distance} cores"
                name = f"{what}, {peer} (run with {run['mpi']})"
                noise = math.hypot(spread(ours), spread(theirs))
                yield name, Ratio(theirs["median_us"] / ours["median_us"], noise)


def spread(found: dict[str, float]) -> float:
    """Half the distance between the quartiles, relative to the median."""
    return (found["high_us"] - found["low_us"]) / 2 / found["median_us"]


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """What both runs have."""
    before = dict(ratios(old))
    return [Change(name, before[name], ratio) for name, ratio in ratios(new) if name in before]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two runs of peers.py.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--fail-at", type=float, default=2.0, metavar="FACTOR")
    args = parser.parse_args()
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (args.old, args.new))
    found = changes(old, new)
    if not found:
        print("compare: the two runs have nothing in common")
        return 1
    for key in ("cpu", "cores", "np", "pin", "dtype"):
        if old["meta"][key] != new["meta"][key]:
            print(f"# not the same kind of machine or run: {key} was {old['meta'][key]}, is {new['meta'][key]}")
    for change in found:
        print(
            f"{change.name:<55} {change.old.value:>8.2f}x -> {change.new.value:>8.2f}x"
            f"  {1 / change.loss:>6.2f}  noise {change.bound:>5.2f}  {change.verdict}"
        )
    lost = [change for change in found if change.verdict == "lost" and change.loss > args.fail_at]
    for change in lost:
        print(f"compare: {change.name}: {change.loss:.1f} times as slow beside the same peer as before")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
