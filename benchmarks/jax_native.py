"""`lax.psum` by `ciranda run --jax-native` beside jaxlib's gloo, on this machine.

    python benchmarks/jax_native.py [--ranks 2] [--rounds 3]

Both run in turns, in fresh processes; a time is the median over all rounds of the median call, whose result is waited
for at once. Figures of one run belong together: what counts are the ratios, of the whole calls, and of what they take
longer than the same program with `x * 2` in place of `lax.psum`, which is what JAX itself takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

SIZES = {"4 B": 1, "1 KiB": 256, "64 KiB": 1 << 14, "4 MiB": 1 << 20}
CALLS = {"4 B": 300, "1 KiB": 300, "64 KiB": 200, "4 MiB": 30}
SYSTEMS = {"ciranda": "mpi", "gloo": "gloo"}


def measure() -> None:
    """On a rank: print the microseconds of a call, by size."""
    import jax

    jax.distributed.initialize()

    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    try:
        from jax import shard_map
    except ImportError:  # before 0.6
        from jax.experimental.shard_map import shard_map

    mesh = Mesh(np.array(jax.devices()), ("i",))
    each, alike = PartitionSpec("i"), PartitionSpec()
    programs = {
        "psum": jax.jit(shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=each, out_specs=alike)),
        "alone": jax.jit(shard_map(lambda x: x * 2, mesh=mesh, in_specs=each, out_specs=each)),
    }
    found: dict[str, dict[str, float]] = {}
    for size, count in SIZES.items():
        values = np.ones((jax.process_count(), count), np.float32)
        x = jax.make_array_from_callback(values.shape, NamedSharding(mesh, each), lambda index, all=values: all[index])
        for name, program in programs.items():
            times = []
            for _ in range(CALLS[size]):
                start = time.perf_counter()
                program(x).block_until_ready()
                times.append(time.perf_counter() - start)
            found.setdefault(size, {})[name] = statistics.median(times[len(times) // 10 :]) * 1e6
    if jax.process_index() == 0:
        print(json.dumps(found))


def run(system: str, ranks: int) -> dict[str, dict[str, float]]:
    """One job with that system's collectives."""
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "--jax-native", "--no-prefix", "-np", str(ranks)]
    choice = ["--env", f"JAX_CPU_COLLECTIVES_IMPLEMENTATION={SYSTEMS[system]}"]
    program = [sys.executable, "-W", "ignore", __file__, "--measure"]
    done = subprocess.run([*launch, *choice, *program], check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    times: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure()
        return
    rounds = [{system: run(system, arguments.ranks) for system in SYSTEMS} for _ in range(arguments.rounds)]
    print(f"lax.psum, {arguments.ranks} ranks, microseconds a call")
    print(f"{'':>8} {'ciranda':>10} {'gloo':>10} {'gloo/ciranda':>13} {'alone':>10} {'of what is added':>17}")
    for size in SIZES:
        ours, theirs = (statistics.median(found[system][size]["psum"] for found in rounds) for system in SYSTEMS)
        alone = statistics.median(found[system][size]["alone"] for found in rounds for system in SYSTEMS)
        ratios = theirs / ours, (theirs - alone) / (ours - alone)
        print(f"{size:>8} {ours:>10.1f} {theirs:>10.1f} {ratios[0]:>13.1f} {alone:>10.1f} {ratios[1]:>17.1f}")


if __name__ == "__main__":
    main()
