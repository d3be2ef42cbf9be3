"""How long the launcher takes to merge what ranks have recorded to one timeline, and how much memory.

The records are made up: calls of 100 names, in which ranks come up to 30 us apart.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import tempfile
import time
from pathlib import Path

from ciranda.launch import record_file
from ciranda.launch.clocks import HostClock
from ciranda.launch.record_file import RecordFile
from ciranda.launch.timeline import RankRecords, about, write_timeline
from ciranda.launch.trace_writer import TraceFile

N_NAMES = 100
ENTRY = struct.Struct("=10Q")
PLAN, FLOAT32 = 6, 12


def recorded(rank: int, n_ranks: int, n_calls: int) -> RecordFile:
    file = RecordFile()
    file.append(ENTRY.pack(record_file.MAGIC, record_file.VERSION, rank, n_ranks, *[0] * 6))
    for number in range(N_NAMES):
        name = f"layers.{number}.weight".encode()
        file.append(struct.pack("=QQ64s", record_file.NAME, number | len(name) << 32, name))
    rng, now = random.Random(rank), 10**9
    first = record_file.CALL | PLAN << 16 | FLOAT32 << 32
    for start in range(0, n_calls, 10_000):
        piece = []
        for n in range(start, min(start + 10_000, n_calls)):
            submitted, agreed = now + rng.randrange(30_000), now + 40_000 + rng.randrange(2_000)
            ready, started, done = submitted + 500, agreed + 500, agreed + 20_000
            piece.append(ENTRY.pack(first, n % N_NAMES, 0, 4096, submitted, ready, ready, agreed, started, done))
            now += 70_000
        file.append(b"".join(piece))
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--calls", type=int, default=1_000_000, help="of all ranks together")
    parser.add_argument("--suffix", default=".json", help=".json.gz to compress")
    options = parser.parse_args()
    n_each = options.calls // options.ranks
    clock = HostClock()
    ranks = [RankRecords(rank, "host", clock, recorded(rank, options.ranks, n_each)) for rank in range(options.ranks)]
    with tempfile.TemporaryDirectory() as folder:
        to = TraceFile(Path(folder) / f"all{options.suffix}")
        began, began_cpu = time.perf_counter(), time.process_time()
        summary = write_timeline(ranks, to, 0)
        to.complete(about(summary, ranks, 0.0, "job", []))
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
        mib = to.path.stat().st_size / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{summary.n_calls} calls of {options.ranks} ranks: {seconds:.1f} s ({cpu_seconds:.1f} s of a core), "
          f"{peak:.0f} MiB, file {mib:.0f} MiB")  # fmt: skip


if __name__ == "__main__":
    main()
