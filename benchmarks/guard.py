"""Holds Ciranda's speed beside gloo against what this kind of machine has shown before. CI runs it.

    python benchmarks/guard.py            # measure, print; exit code 1 if something has become twice as slow
    python benchmarks/guard.py --write    # measure, and keep it as this kind of machine's baseline

A baseline is a small file in ``baselines``, by processor and number of cores, that holds ratios to gloo: how many
times as long gloo takes, the best call of each against the best of the other, in one run and in turns. The best calls
are what a busy machine changes least. Near cores have ratios of their own, and far ones (distances.py); those of files
that did not tell yet are ``unknown``. A ratio that falls below half of the baseline's is measured a second time, and
only if it is so low again the exit code is 1. What has no baseline is measured and passes.

With ``--beside-work``: beside two processes that are never idle, medians are held against the peer's in the same run.
Calls of 64 B and 8 KiB take half of its time at most, and those of 1 MiB, most of which is work, no more than it.

A blocking call without a name is held against one with a name, on any machine (unnamed.py), and calls that end by
callback against calls that are waited for (called_back.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
LEAST_BESIDE_WORK = {64: 2.0, 8 << 10: 2.0, 1 << 20: 1.0}  # of the peer's median time over Ciranda's, by bytes
_WHAT = ["--peers", PEER, "--sizes", "1K,256K,4M,16M", "--iterations", "2000"]

Place = tuple[str, int]  # how far apart the cores were, and bytes
Ratios = dict[Place, float]


@dataclass(frozen=True)
class Held:
    """A ratio, and the baseline's, where it has one."""

    place: Place
    ratio: float
    baseline: float | None

    @property
    def is_lost(self) -> bool:
        return self.baseline is not None and self.ratio * MOST_LOSS < self.baseline

    def __str__(self) -> str:
        before = "none yet" if self.baseline is None else f"{self.baseline:.1f}x"
        verdict = "LOST" if self.is_lost else ""
        return f"{name_of(self.place):<26} {self.ratio:>8.1f}x {before:>10}  {verdict}".rstrip()


def name_of(place: Place) -> str:
    distance, n_bytes = place
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
    return {place: max(ratio, other[place]) for place, ratio in one.items() if place in other}


def hold(found: Ratios, baseline: Ratios) -> list[Held]:
    """Each ratio beside its baseline: that of another distance says nothing about it."""
    return [Held(place, ratio, baseline.get(place)) for place, ratio in found.items()]


def never_met(found: Ratios) -> list[str]:
    """The distances of which there is nothing."""
    return [distance for distance in (NEAR, FAR) if not any(place[0] == distance for place in found)]


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
    kept = {place: ratio for place, ratio in read_baseline(path).items() if place[0] in never_met(found)}
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


@contextmanager
def other_work() -> Iterator[None]:
    """As many processes as there are cores, none of which ever waits for anything."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def median_ratios(run: dict[str, Any]) -> dict[int, float]:
    """The peer's median time over Ciranda's by bytes, of one run of peers.py: where the cores were best placed."""
    found: dict[int, float] = {}
    for row in run["rows"]:
        ratio = row["systems"][PEER]["median_us"] / row["systems"]["ciranda"]["median_us"]
        found[row["n_bytes"]] = max(ratio, found.get(row["n_bytes"], 0.0))
    return found


def measure_beside_work(seconds: float) -> dict[int, float]:
    """Some seconds of one run."""
    sizes = ",".join(map(str, LEAST_BESIDE_WORK))
    args = peers.parse(["--peers", PEER, "--sizes", sizes, "--iterations", "2000", "--seconds", str(seconds)])
    with other_work():
        return median_ratios(peers.measure(args, [PEER], "no MPI", None))


def falls_behind_beside_work(seconds: float) -> bool:
    """Whether calls beside other work are too slow, measured twice; says so."""
    found = measure_beside_work(seconds)
    if any(found[n_bytes] < least for n_bytes, least in LEAST_BESIDE_WORK.items()):
        again = measure_beside_work(seconds)
        found = {n_bytes: max(ratio, again[n_bytes]) for n_bytes, ratio in found.items()}
    behind = [n_bytes for n_bytes, least in LEAST_BESIDE_WORK.items() if found[n_bytes] < least]
    for n_bytes, ratio in found.items():
        print(f"{f'allreduce {format_size(n_bytes)}, beside work':<26} {ratio:>8.1f}x")
    for n_bytes in behind:
        least = LEAST_BESIDE_WORK[n_bytes]
        print(f"guard: allreduce {format_size(n_bytes)}, beside work: less than {least:g} times as fast as {PEER}")
    return bool(behind)


def ratio_by(script: str) -> float:
    """The last word of what a script says that two ranks run."""
    launcher = str(Path(sys.executable).with_name("ciranda"))
    command = [launcher, "run", "--no-prefix", "-np", "2", sys.executable, str(Path(__file__).with_name(script))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return float(done.stdout.split()[-1])


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
    parser.add_argument("--beside-work", action="store_true", help="measure beside busy processes, too: minutes")
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
        print(f"guard: {name_of(each.place)}: more than {MOST_LOSS:g} times as long as it was beside {PEER}")
    unnamed = exceeds("unnamed.py", "a call without a name, beside one with", MOST_UNNAMED)
    called_back = exceeds("called_back.py", "a callback, beside a wait", MOST_CALLED_BACK)
    beside_work = args.beside_work and falls_behind_beside_work(args.seconds)
    return 1 if lost or unnamed or called_back or beside_work else 0


if __name__ == "__main__":
    sys.exit(main())
