"""The command `ciranda bench`."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from ciranda import _core, _limits
from ciranda._sizes import parse_size
from ciranda.bench import plot as plots
from ciranda.bench import ranks, table
from ciranda.bench.plan import COLLECTIVES, DEVICES, DTYPES, OPS, Plan, Results
from ciranda.bench.systems import CANNOT, PEERS
from ciranda.errors import InvalidArgumentError
from ciranda.launch.api import RunOptions
from ciranda.launch.api import run as launch
from ciranda.launch.num_proc import NUM_PROC, PER_HOST, CommandWithRanks

# The kernel counts in ticks of 4 or 10 ms, of which this has enough to tell a tenth.
_LOOK_SECONDS = 0.3

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.command(cls=CommandWithRanks, context_settings={"help_option_names": ["-h", "--help"]})
def bench(
    collective: Annotated[str, typer.Argument(help=f"One of {', '.join(COLLECTIVES)}.")] = "allreduce",
    np: Annotated[int, typer.Option(*NUM_PROC, *PER_HOST, min=1, metavar="N", help="Number of ranks, here.")] = 2,
    minimum: Annotated[str, typer.Option("-b", "--min-bytes", metavar="SIZE", help="Smallest size.")] = "4",
    maximum: Annotated[str, typer.Option("-e", "--max-bytes", metavar="SIZE", help="Largest size.")] = "64M",
    factor: Annotated[int, typer.Option("-f", "--factor", min=2, metavar="N", help="From one size to the next.")] = 4,
    dtype: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(DTYPES)}.")] = "float32",
    op: Annotated[str, typer.Option(metavar="NAME", help=f"Of an allreduce: {', '.join(OPS)}.")] = "sum",
    peers: Annotated[str, typer.Option(metavar="NAMES", help=f"Measure also, in turns: {', '.join(PEERS)}.")] = "",
    seconds: Annotated[float, typer.Option(min=0.0, help="At most, for each size and system.")] = 0.5,
    iterations: Annotated[int, typer.Option(min=5, help="At most, for each size and system.")] = 500,
    warm_up: Annotated[int, typer.Option("-w", "--warm-up", min=1, help="Calls before those that count.")] = 5,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where tensors lie: cpu, or cuda (with torch).")] = "cpu",
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help="Bind rank r to core r.")] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Measure each candidate algorithm, beside its expected cost. On GPUs: which way, and why.",
        ),
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Show how long each stage of a call takes.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results there.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw them there (PNG, SVG, PDF).")] = None,
) -> None:
    """Measure a collective's latency and bandwidth by size, and check its results.

    Sizes are those of the result, as 4, 16K, 1M or 2G. The exit code is 1 if any element was wrong.
    """
    plan = make_plan(
        collective=collective, np=np, minimum=minimum, maximum=maximum, factor=factor, dtype=dtype, op=op, peers=peers,
        seconds=seconds, iterations=iterations, warm_up=warm_up, pin=pin, explain=explain,
        profile=profile, device=device,
    )  # fmt: skip
    has_choice = device != "cpu" or plan.collective in ("allreduce", "broadcast")
    if explain and (peers or plot is not None or not has_choice):
        raise typer.BadParameter("--explain is for allreduce and broadcast, without --peers and --plot")
    if profile and (explain or peers or plot is not None):
        raise typer.BadParameter("--profile measures Ciranda only, without --explain, --peers and --plot")
    if device != "cpu" and (profile or peers or plot is not None):
        raise typer.BadParameter("--device cuda is measured without --profile, --peers and --plot")
    for path in (json_file, plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {path.absolute().parent}")
    if plot is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise typer.BadParameter("--plot needs matplotlib: pip install matplotlib") from None
    results = run(plan)
    print(table.footer(results))
    if json_file is not None:
        json_file.write_text(json.dumps(results.to_dict(), indent=1) + "\n", encoding="utf-8")
        print(f"# results: {json_file}")
    if plot is not None:
        plots.save(results, plot)
        print(f"# plot: {plot}")
    if any(m.n_wrong for row in results.rows for m in row.systems.values()):
        raise typer.Exit(1)


def make_plan(*, minimum: str, maximum: str, peers: str, **rest: Any) -> Plan:
    """Check what was typed. Raises typer.BadParameter, which says what is possible."""
    names = tuple(name.strip() for name in peers.split(",") if name.strip())
    try:
        plan = Plan(min_bytes=parse_size(minimum), max_bytes=parse_size(maximum), peers=names, **rest)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    for what, value, known in (
        ("collective", plan.collective, COLLECTIVES),
        ("dtype", plan.dtype, DTYPES),
        ("op", plan.op, OPS),
        ("device", plan.device, DEVICES),
        *(("peer", peer, tuple(PEERS)) for peer in names),
    ):
        if value not in known:
            raise typer.BadParameter(f"there is no {what} {value!r}: choose from {', '.join(known)}")
    if plan.device == "cuda" and plan.dtype in ("uint16", "uint32", "uint64"):
        raise typer.BadParameter(f"torch computes nothing with {plan.dtype} on GPUs")
    if plan.min_bytes > plan.max_bytes:
        raise typer.BadParameter("the smallest size (-b) is larger than the largest (-e)")
    for peer in names:
        op = plan.op if plan.collective == "allreduce" else ""
        for reason in (CANNOT.get((peer, op)), CANNOT.get((peer, plan.dtype))):
            if reason is not None:
                raise typer.BadParameter(reason)
    return plan


def run(plan: Plan) -> Results:
    """Start the ranks, let them measure, and return what they found. Prints the table as it grows."""
    meta = describe(plan)
    warning = table.warning(_load_of_others_percent())
    if warning:
        print(warning, flush=True)
    print(table.header_of(plan)(plan, meta), flush=True)
    busy_before, started = _busy_seconds(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ciranda-bench-") as folder:
        per_rank = launch(ranks.main, (plan, folder), hosts=f"localhost:{plan.np}", options=RunOptions(prefix=False))
    others = _busy_seconds() - busy_before - sum(used for _, used in per_rank)
    available = (time.monotonic() - started) * meta["cores"]
    meta["other_load_percent"] = max(0.0, 100 * others / available)
    return Results(meta, per_rank[0][0])


def describe(plan: Plan) -> dict[str, Any]:
    """What was measured, where and with what."""
    versions = {"ciranda": _version("ciranda")}
    if "gloo" in plan.peers:
        versions["torch"] = _version("torch")
    return {
        "collective": plan.collective,
        "dtype": plan.dtype,
        "op": plan.op,
        "np": plan.np,
        "systems": list(plan.systems),
        "pin": plan.pin,
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "limit_gb_per_s": _limit(plan),
        **({"device": _gpus(), "torch": _version("torch")} if plan.device == "cuda" else {}),
        **versions,
    }


def _gpus() -> str:
    try:
        from ciranda.bench.on_gpu import described  # with torch
    except ImportError:
        raise typer.BadParameter("--device cuda needs torch") from None
    found = described()
    if not found:
        raise typer.BadParameter("--device cuda: torch sees no GPU. 'ciranda doctor' says what is missing")
    return found


def _limit(plan: Plan) -> float | None:
    """The bus bandwidth that this machine allows, as far as 'ciranda tune' has measured it; None where it has not."""
    if (plan.collective, plan.np, plan.device) != ("allreduce", 2, "cpu"):
        return None
    try:
        costs = _core.measured_costs()
    except InvalidArgumentError:  # a broken file
        return None
    return _limits.in_shared_memory(costs) / 1e9 if costs else None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed as a package)"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _load_of_others_percent() -> float:
    """What runs on the machine before the ranks do."""
    mine = psutil.Process()
    before, began = _busy_seconds() - sum(mine.cpu_times()[:2]), time.monotonic()
    time.sleep(_LOOK_SECONDS)
    others = _busy_seconds() - sum(mine.cpu_times()[:2]) - before
    return float(max(0.0, 100 * others / ((time.monotonic() - began) * (os.cpu_count() or 1))))


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


if __name__ == "__main__":
    app()
