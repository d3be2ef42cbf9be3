"""Holds Ciranda's speed beside gloo against what this kind of machine has shown before. CI runs it.

    python benchmarks/guard.py            # measure, print; exit code 1 if something has become twice as slow
    python benchmarks/guard.py --write    # measure, and keep it as this kind of machine's baseline

A baseline is a small file in ``baselines``, by processor and number of cores, that holds ratios to gloo: how many
times as long gloo takes, the best call of each against the best of the other, in one run and in turns. The best calls
are what a busy machine changes least. Near cores have ratios of their own, and far ones (distances.py); those of files
that did not tell yet are ``unknown``. A ratio that falls below half of the baseline's is measured a second time, and
only if it is so low again the exit code is 1. What has no baseline is measured and passes.

Beside other work, two processes that are never idle, mean times are held against the peer's in the same run
(beside_work.py): calls take half of its time at most.

A blocking call without a name is held against one with a name, on any machine (unnamed.py), and calls that end by
callback against calls that are waited for (called_back.py).
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
from distances import FAR, NEAR, UNKNOWN

from ciranda.bench.plan import format_size

FOLDER = Path(__file__).with_name("baselines")
PEER = "gloo"
MOST_LOSS = 2.0
MOST_UNNAMED = 1.5  # of the time of a named call; 1.0 where nothing disturbs
MOST_CALLED_BACK = 2.0  # of the time of the same calls waited for; 1.1 to 1.3, also beside other work
LEAST_BESIDE_WORK = 2.0  # of the peer's mean time over Ciranda's
_WHAT = ["--peers", PEER, "--sizes", "1K,256K,4M,16M", "--iterations", "2000"]

Case = tuple[str, int]  # how far apart the cores were, and bytes
Ratios = dict[Case, float]


@dataclass(frozen=True)
class Held:
    """A ratio, and the baseline's, where it has one."""

    case: Case
    ratio: float
    baseline: float | None

    @property
    def is_lost(self) -> bool:
        return self.baseline is not None and self.ratio * MOST_LOSS < self.baseline

    def __str__(self) -> str:
        before = "none yet" if self.baseline is None else f"{self.baseline:.1f}x"
        verdict = "LOST" if self.is_lost else ""
        return f"{name_of(self.case):<26} {self.ratio:>8.1f}x {before:>10}  {verdict}".rstrip()


def name_of(case: Case) -> str:
    distance, n_bytes = case
    return f"allreduce {format_size(n_bytes)}, {distance}"


def ratios(run: dict[str, Any]) -> Ratios:
    """The peer's best time over Ciranda's, of one run of peers.py."""
    return {
        (peers.distance_of(row), row["n_bytes"]): row["systems"][PEER]["min_us"] / row["systems"]["ciranda"]["min_us"]
        for row in run["rows"]
    }


def better_of(one: Ratios, other: Ratios) -> Ratios:
    """The greater of each: what disturbs a run makes it worse, for whichever system is disturbed.

    Without what only one of them met: it has not been measured twice.
    """
    return {case: max(ratio, other[case]) for case, ratio in one.items() if case in other}


def hold(found: Ratios, baseline: Ratios) -> list[Held]:
    """Each ratio beside its baseline: that of another distance says nothing about it."""
    return [Held(case, ratio, baseline.get(case)) for case, ratio in found.items()]


def never_met(found: Ratios) -> list[str]:
    """The distances of which there is nothing."""
    return [distance for distance in (NEAR, FAR) if not any(case[0] == distance for case in found)]


def baseline_file(folder: Path, cpu: str, cores: int) -> Path:
    """Where the baseline of such machines is, or would be."""
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', cpu.lower()).strip('-')}-{cores}-cores.json"


def read_baseline(path: Path) -> Ratios:
    """Empty where there is none."""
    if not path.exists():
        return {}
    written = json.loads(path.read_text(encoding="utf-8"))["ratios"]
    if not any(isinstance(each, dict) for each in written.values()):  # as it was written before distances were told
        written = {UNKNOWN: written}
    return {(distance, int(n_bytes)): ratio for distance, of in written.items() for n_bytes, ratio in of.items()}


def write_baseline(path: Path, machine: dict[str, Any], found: Ratios) -> None:
    """Keep it, to a tenth, beside what there was of distances that were not met."""
    kept = {case: ratio for case, ratio in read_baseline(path).items() if case[0] in never_met(found)}
    by_distance: dict[str, dict[str, float]] = {}
    for (distance, n_bytes), ratio in sorted({**kept, **found}.items()):
        by_distance.setdefault(distance, {})[str(n_bytes)] = round(ratio, 1)
    path.parent.mkdir(exist_ok=True)
    content = {**machine, "peer": PEER, "ratios": by_distance}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measure(seconds: float) -> Ratios:
    """Some seconds of one run."""
    args = peers.parse([*_WHAT, "--seconds", str(seconds)])
    return ratios(peers.measure(args, [PEER], "no MPI", None))


def said_by(script: str) -> list[str]:
    """The lines of what a script says that two ranks run."""
    launcher = str(Path(sys.executable).with_name("ciranda"))
    command = [launcher, "run", "--no-prefix", "-np", "2", sys.executable, str(Path(__file__).with_name(script))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


def ratio_by(script: str) -> float:
    """The last word of what it says."""
    return float(said_by(script)[-1].split()[-1])


def ratios_beside_work() -> dict[str, float]:
    """The peer's mean time over Ciranda's, by size."""
    lines = [line.split(":") for line in said_by("beside_work.py")]
    return {size.strip(): float(said.split()[-1]) for size, said in lines}


def falls_behind_beside_work() -> bool:
    """Whether calls beside other work are too slow, measured twice; says so."""
    found = ratios_beside_work()
    if min(found.values()) < LEAST_BESIDE_WORK:
        again = ratios_beside_work()
        found = {size: max(ratio, again[size]) for size, ratio in found.items()}
    for size, ratio in found.items():
        print(f"{f'allreduce {size}, beside other work':<40} {ratio:>8.1f}x")
        if ratio < LEAST_BESIDE_WORK:
            print(
                f"guard: allreduce {size}, beside other work: less than {LEAST_BESIDE_WORK:g} times as fast as {PEER}"
            )
    return min(found.values()) < LEAST_BESIDE_WORK


def exceeds(script: str, what: str, most: float) -> bool:
    """Whether calls take more than `most` times as long as those that the script compares them with; says so."""
    ratio = ratio_by(script)
    if ratio > most:
        ratio = min(ratio, ratio_by(script))
    print(f"{what:<40} {ratio:>8.2f} times as long")
    if ratio > most:
        print(f"guard: {what}: more than {most:g} times as long")
    return ratio > most


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
    for distance in never_met(found):
        print(f"# cores were never {distance}")
    lost = [each for each in held if each.is_lost]
    for each in lost:
        print(f"guard: {name_of(each.case)}: more than {MOST_LOSS:g} times as long as it was beside {PEER}")
    unnamed = exceeds("unnamed.py", "a call without a name, beside one with", MOST_UNNAMED)
    called_back = exceeds("called_back.py", "a callback, beside a wait", MOST_CALLED_BACK)
    beside_work = falls_behind_beside_work()
    return 1 if lost or unnamed or called_back or beside_work else 0


if __name__ == "__main__":
    sys.exit(main())
