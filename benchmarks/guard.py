"""Holds Ciranda's speed beside gloo against what this kind of machine has shown before. CI runs it.

    python benchmarks/guard.py            # measure, print; exit code 1 if something has become twice as slow
    python benchmarks/guard.py --write    # measure, and keep it as this kind of machine's baseline

A baseline is a small file in ``baselines``, by processor and number of cores, that holds ratios to gloo: how many
times as long gloo takes, the best call of each against the best of the other, in one run and in turns. The best calls
are what a busy machine changes least. A ratio that falls below half of the baseline's is measured a second time, and
only if it is so low again the exit code is 1. A machine without a baseline is measured and passes.

A blocking call without a name is held against one with a name, on any machine (unnamed.py).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers

from ciranda.bench.plan import format_size

FOLDER = Path(__file__).with_name("baselines")
PEER = "gloo"
MOST_LOSS = 2.0
MOST_UNNAMED = 1.5  # of the time of a named call; 1.0 where nothing disturbs
_WHAT = ["--peers", PEER, "--sizes", "1K,256K,4M,16M", "--iterations", "2000"]

Ratios = dict[int, float]  # by bytes


@dataclass(frozen=True)
class Held:
    """A ratio, and the baseline's, where it has one."""

    n_bytes: int
    ratio: float
    baseline: float | None

    @property
    def is_lost(self) -> bool:
        return self.baseline is not None and self.ratio * MOST_LOSS < self.baseline

    def __str__(self) -> str:
        before = "none yet" if self.baseline is None else f"{self.baseline:.1f}x"
        verdict = "LOST" if self.is_lost else ""
        return f"{'allreduce ' + format_size(self.n_bytes):<20} {self.ratio:>8.1f}x {before:>10}  {verdict}".rstrip()


def ratios(run: dict[str, Any]) -> Ratios:
    """The peer's best time over Ciranda's, of one run of peers.py."""
    return {row["n_bytes"]: row["systems"][PEER]["min_us"] / row["systems"]["ciranda"]["min_us"] for row in run["rows"]}


def better_of(one: Ratios, other: Ratios) -> Ratios:
    """The greater of each: what disturbs a run makes it worse, for whichever system is disturbed."""
    return {n_bytes: max(ratio, other[n_bytes]) for n_bytes, ratio in one.items()}


def hold(found: Ratios, baseline: Ratios) -> list[Held]:
    """Each ratio beside its baseline."""
    return [Held(n_bytes, ratio, baseline.get(n_bytes)) for n_bytes, ratio in found.items()]


def baseline_file(folder: Path, cpu: str, cores: int) -> Path:
    """Where the baseline of such machines is, or would be."""
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', cpu.lower()).strip('-')}-{cores}-cores.json"


def read_baseline(path: Path) -> Ratios:
    """Empty where there is none."""
    if not path.exists():
        return {}
    return {int(n_bytes): ratio for n_bytes, ratio in json.loads(path.read_text(encoding="utf-8"))["ratios"].items()}


def write_baseline(path: Path, machine: dict[str, Any], found: Ratios) -> None:
    """Keep it, to a tenth."""
    path.parent.mkdir(exist_ok=True)
    content = {**machine, "peer": PEER, "ratios": {str(size): round(ratio, 1) for size, ratio in found.items()}}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measure(seconds: float) -> Ratios:
    """Some seconds of one run."""
    args = peers.parse([*_WHAT, "--seconds", str(seconds)])
    return ratios(peers.measure(args, [PEER], "no MPI", None))


def measure_unnamed() -> float:
    """How many times as long a blocking call takes without a name as with one."""
    script = Path(__file__).with_name("unnamed.py")
    launcher = str(Path(sys.executable).with_name("ciranda"))
    command = [launcher, "run", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return float(done.stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold Ciranda's speed against its baseline.")
    parser.add_argument("--write", action="store_true", help="make what is measured the baseline")
    parser.add_argument("--baselines", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each size and system")
    args = parser.parse_args()
    described = peers.describe(peers.Plan(peers=(PEER,)))
    machine = {key: described[key] for key in ("cpu", "cores", "np", "torch")}
    path = baseline_file(args.baselines, machine["cpu"], machine["cores"])
    found = measure(args.seconds)
    if args.write:
        write_baseline(path, machine, found)
    held = hold(found, read_baseline(path))
    if any(each.is_lost for each in held):
        print("\n".join(map(str, held)))
        print("guard: so slow? Measured once more:")
        held = hold(better_of(found, measure(args.seconds)), read_baseline(path))
    print(f"# {PEER}'s best time over Ciranda's, and the baseline of {machine['cpu']} with {machine['cores']} cores")
    print("\n".join(map(str, held)))
    lost = [each for each in held if each.is_lost]
    for each in lost:
        print(f"guard: {format_size(each.n_bytes)} takes more than {MOST_LOSS:g} times as long as it did beside {PEER}")
    unnamed = measure_unnamed()
    if unnamed > MOST_UNNAMED:
        unnamed = min(unnamed, measure_unnamed())
    print(f"{'allreduce 4, unnamed':<20} {unnamed:>8.2f} times as long as with a name")
    if unnamed > MOST_UNNAMED:
        print(f"guard: a call without a name takes more than {MOST_UNNAMED:g} times as long as one with a name")
    return 1 if lost or unnamed > MOST_UNNAMED else 0


if __name__ == "__main__":
    sys.exit(main())
