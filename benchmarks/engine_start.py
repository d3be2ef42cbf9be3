"""How long it takes until ranks that an engine has started have met, and until a function has run on ranks that stay.

    python benchmarks/engine_start.py slurm    # 4 nodes of 2 ranks, by srun and by ciranda run, beside gloo
    python benchmarks/engine_start.py pool     # a function that does nothing, on a Pool of 4 ranks
    python benchmarks/engine_start.py ray      # ciranda.ray.run(), beside actors that do the same without Ciranda

slurm: a cluster of network namespaces, which needs root and Debian's Slurm (tools/install-deps.sh slurm). The time is
that from the moment when all processes run and have imported what they need, to the end of the first allreduce on the
last of them: once by Ciranda, once by torch's gloo, in turns, as are the two ways to start. `steady` is an allreduce of
4 KiB from then on. ray needs Ray (`make engines` has it); the difference is what Ciranda adds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RANK = Path(__file__).with_name("engine_start_rank.py")
NODES, PER_NODE = 4, 2


def line(name: str, values: Sequence[float], unit: str) -> str:
    """One row of what is printed."""
    return (
        f"{name:36} median {statistics.median(values):8.1f} {unit}, least {min(values):8.1f}, most {max(values):8.1f}"
    )


def timed_ms(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


# --- Slurm ---


def slurm(rounds: int) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "multiprocess"))
    import slurm_cluster

    if (why := slurm_cluster.why_not()) is not None:
        sys.exit(f"there can be no Slurm here: {why}")
    srun = ["srun", f"-N{NODES}", f"--ntasks-per-node={PER_NODE}", sys.executable]
    run = ["salloc", f"-N{NODES}", f"--ntasks-per-node={PER_NODE}", sys.executable, "-m", "ciranda.launch.cli", "run",
           "--no-prefix", sys.executable]  # fmt: skip
    ways = {"srun": srun, "ciranda run": run}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    with slurm_cluster.cluster(NODES) as cluster:
        for number in range(rounds):
            for name, command in ways.items():
                found[name].append(of_one_job(cluster, command, number))
    for name, jobs in found.items():
        for way in ("ciranda", "gloo"):
            print(line(f"{name}: start by {way}", [each[way] for each in jobs], "ms"))
        print(line(f"{name}: steady", [each["steady_us"] for each in jobs], "us"))


def of_one_job(cluster: Any, command: Sequence[str], number: int) -> dict[str, float]:
    """Start the ranks once; the times of the last rank, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        first = ("ciranda", "gloo")[number % 2]
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "GLOO_ADDRESS": cluster.hosts[0].address,
               "XDG_CACHE_HOME": name, "CIRANDA_START_TIMEOUT": "100"}  # fmt: skip
        code, _, err = cluster.run(*command, str(RANK), name, str(29400 + number), first, seconds=300, **env)
        if code != 0:
            sys.exit(err)
        ranks = [json.loads(path.read_text(encoding="ascii")) for path in Path(name).glob("found.*")]
    assert len(ranks) == NODES * PER_NODE
    times = {
        way: 1e3 * (max(rank[way][1] for rank in ranks) - max(rank[way][0] for rank in ranks))
        for way in ("ciranda", "gloo")
    }
    return {**times, "steady_us": max(rank["steady_us"] for rank in ranks)}


# --- ranks that stay ---


def nothing() -> int:
    return os.getpid()


def pool(rounds: int) -> None:
    from ciranda.launch import Pool

    with Pool(np=4) as ranks:
        ranks.run(nothing)
        print(line("Pool.run()", [timed_ms(lambda: ranks.run(nothing)) for _ in range(20 * rounds)], "ms"))


def of_ray(rounds: int) -> None:
    import ray

    import ciranda.ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)

    class Bare:
        def __init__(self) -> None:
            import ciranda  # noqa: F401  # what a rank imports too

        def call(self, function: Callable[[], int]) -> int:
            return function()

    def bare() -> list[int]:
        group = ray.util.placement_group([{"CPU": 1}] * 4, strategy="PACK")
        where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
        actors = [ray.remote(Bare).options(num_cpus=1, scheduling_strategy=where).remote() for _ in range(4)]
        results: list[int] = ray.get([actor.call.remote(nothing) for actor in actors])
        for actor in actors:
            ray.kill(actor)
        ray.util.remove_placement_group(group)
        return results

    calls = {"bare actors": bare, "ciranda.ray.run()": lambda: ciranda.ray.run(nothing, np=4)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            took = timed_ms(call)
            if number > 0:  # the first starts Ray's workers
                times[name].append(took)
    for name, values in times.items():
        print(line(name, values, "ms"))
    more = [ours - theirs for theirs, ours in zip(times["bare actors"], times["ciranda.ray.run()"], strict=True)]
    print(line("the difference", more, "ms"))
    with ciranda.ray.Executor(np=4) as executor:
        executor.run(nothing)
        print(line("Executor.run()", [timed_ms(lambda: executor.run(nothing)) for _ in range(20 * rounds)], "ms"))
    ray.shutdown()


def main() -> None:
    parts = {"slurm": slurm, "pool": pool, "ray": of_ray}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=parts)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    parts[args.part](args.rounds)


if __name__ == "__main__":
    main()
