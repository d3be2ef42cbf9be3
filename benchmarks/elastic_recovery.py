"""How long an elastic job stands still when a rank is killed, and when another joins; beside torchrun and torchft.

    python benchmarks/elastic_recovery.py [--ranks 4] [--kills 4] [--megabytes 100] [--no-torchrun]

Each kill is that of another rank, by SIGKILL, and is followed by the join of its successor:

    noticed      from the kill until the last of the survivors has a RanksLostError
    next step    from the kill until all of them have made a step and committed it
    forming      of the world without the lost one: from the first rank that is told of it until the last is in it
    stand still  of a survivor, from its last step without the newcomer to the first with it, which has got a state of
                 so many megabytes; the time of a usual step, with its commit, is taken off

    agent        from the kill of a host's agent until none of its ranks is left

torchrun starts all processes again, so its next step comes after their imports. torchft is measured if it is installed:
its survivors wait for the lost replica until the lighthouse's join timeout, here of 1 s and of 0.1 s; a replica that is
killed is started again at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

RANK = Path(__file__).with_name("elastic_recovery_rank.py")
Rows = list[dict[str, Any]]


def run(command: Sequence[str], n_ranks: int, n_kills: int, megabytes: float) -> Rows:
    """One job; what its ranks have noted, in the order of time."""
    with tempfile.TemporaryDirectory() as name:
        words = [*command, str(RANK), name, str(n_kills), str(megabytes)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "N_RANKS": str(n_ranks)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=1200, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        return rows_of(Path(name))


def rows_of(folder: Path) -> Rows:
    """What ranks have noted there, in the order of time."""
    rows = [json.loads(line) for path in folder.iterdir() if path.name.isdigit() for line in path.open()]
    return sorted(rows, key=lambda row: float(row["at"]))


def elastic(n_ranks: int, n_kills: int, megabytes: float) -> Rows:
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "--elastic", "--no-prefix", "-np", str(n_ranks)]
    return run([*launch, "--min-np", "1", sys.executable], n_ranks, n_kills, megabytes)


def torchrun(n_ranks: int, n_kills: int) -> Rows:
    launch = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(n_ranks),
    ]
    return run([*launch, "--max-restarts", str(n_kills)], n_ranks, n_kills, 0)


LIGHTHOUSE = """
import sys, time
from torchft.coordination import LighthouseServer
server = LighthouseServer("[::]:0", 1, join_timeout_ms=int(sys.argv[1]))
print("at", server.address(), flush=True)
time.sleep(3600)
"""


def torchft(n_ranks: int, n_kills: int, join_ms: int) -> Rows:
    """Replicas of one process each, which are started again until all have ended well."""
    words = [sys.executable, "-c", LIGHTHOUSE, str(join_ms)]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as lighthouse,
    ):
        assert lighthouse.stdout is not None
        address = next(line.split()[1] for line in lighthouse.stdout if line.startswith("at "))
        env = {**os.environ, "OMP_NUM_THREADS": "1", "N_RANKS": str(n_ranks), "TORCHFT_LIGHTHOUSE": address}

        def start(place: int) -> subprocess.Popen[bytes]:
            replica = [sys.executable, str(RANK), name, str(n_kills), "0"]
            return subprocess.Popen(replica, env={**env, "PLACE": str(place)}, stderr=subprocess.DEVNULL)

        running = {place: start(place) for place in range(n_ranks)}
        while running:
            time.sleep(0.01)
            for place, process in list(running.items()):
                if process.poll() == 0:
                    del running[place]
                elif process.returncode is not None:
                    running[place] = start(place)
        lighthouse.kill()
        return rows_of(Path(name))


def seconds_without_agent(n_ranks: int) -> float:
    """Start a job, kill its agent, and return the seconds until none of its ranks is left."""
    sleep = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(600)"
    with tempfile.TemporaryDirectory() as name:
        launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "--elastic", "-np", str(n_ranks)]
        with subprocess.Popen([*launch, sys.executable, "-c", sleep, name], stderr=subprocess.DEVNULL):
            while len(os.listdir(name)) < n_ranks:
                time.sleep(0.01)
            ranks = [psutil.Process(int(pid)) for pid in os.listdir(name)]
            ranks[0].parent().kill()
            began = time.monotonic()
            while any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks):
                time.sleep(0.001)
            return time.monotonic() - began


def of(rows: Rows, what: str) -> Rows:
    return [row for row in rows if row["what"] == what]


def since_kill(rows: Rows, what: str, n_ranks: int, turn: int = 0) -> list[float]:
    """For each kill the seconds until so many ranks have noted it for the first time, in its turn or in a later one."""
    found = []
    for kill in of(rows, "kill"):
        first = {row["pid"]: row["at"] for row in reversed(of(rows, what)) if row["turn"] == kill["turn"] + turn}
        found.append(sorted(first.values())[n_ranks - 1] - kill["at"])
    return found


def forming(rows: Rows, n_survivors: int) -> list[float]:
    """For each kill the seconds from the first survivor that is told of the next world until the last is in it."""
    found = []
    for kill in of(rows, "kill"):
        formed = [row for row in of(rows, "formed") if row["at"] > kill["at"]][:n_survivors]
        found.append(max(row["at"] for row in formed) - min(row["began"] for row in formed))
    return found


def standing_still(rows: Rows, n_ranks: int) -> list[float]:
    """For each join the longest pause of a survivor, beyond a usual step."""
    pauses: dict[int, list[float]] = {}  # of each join
    usual = []
    for pid in {row["pid"] for row in rows}:
        steps = [row for row in of(rows, "step") if row["pid"] == pid]
        for before, after in pairwise(steps):
            pause = after["at"] - before["at"]
            if before["size"] == after["size"] == n_ranks and before["turn"] == after["turn"]:
                usual.append(pause)
            elif before["size"] < after["size"] == n_ranks:
                pauses.setdefault(after["turn"], []).append(pause)
    return [max(each) - statistics.median(usual) for each in pauses.values()]


def show(what: str, seconds: Sequence[float]) -> None:
    print(f"{what:40} median {statistics.median(seconds):7.3f} s, at most {max(seconds):7.3f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--no-torchrun", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{args.ranks} ranks, {args.kills} kills, {os.cpu_count()} cores, load {load:.1f} before", flush=True)
    rows = elastic(args.ranks, args.kills, 0)
    survivors = args.ranks - 1
    show("noticed", since_kill(rows, "noticed", survivors))
    show("next step", since_kill(rows, "step", survivors, 1))
    show("forming", forming(rows, survivors))
    if args.megabytes > 0:
        rows = elastic(args.ranks, min(args.kills, args.ranks), args.megabytes)
        show(f"stand still for {args.megabytes:g} MB of a newcomer", standing_still(rows, args.ranks))
    show("agent", [seconds_without_agent(args.ranks) for _ in range(args.kills)])
    if importlib.util.find_spec("torchft") is not None:
        for join_ms in (1000, 100):
            rows = torchft(args.ranks, args.kills, join_ms)
            show(f"torchft, {join_ms / 1000:g} s: next step", since_kill(rows, "step", survivors, 1))
    if not args.no_torchrun:
        rows = torchrun(args.ranks, args.kills)
        show("torchrun: next step", since_kill(rows, "step", args.ranks, 1))


if __name__ == "__main__":
    main()
