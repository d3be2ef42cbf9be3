"""The table on the terminal, in the manner of nccl-tests. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ciranda import _core
from ciranda.bench.plan import Measurement, Plan, Results, Row, format_size
from ciranda.bench.stages import STAGES

_LEFT = f"{'size':>11} {'count':>11} {'dtype':>8} {'op':>8}"
_SYSTEM = f"{'time':>10} {'min':>10} {'algbw':>7} {'busbw':>7} {'#wrong':>6}"
_UNITS = f"{'us':>10} {'us':>10} {'GB/s':>7} {'GB/s':>7} {'':>6}"


#: Percent of the machine that others may use before the figures are no longer Ciranda's alone.
_MOST_LOAD = 10.0


def warning(other_load_percent: float) -> str:
    """The warning at the top if other processes keep the machine busy; else nothing."""
    if other_load_percent <= _MOST_LOAD:
        return ""
    return (
        f"# WARNING: other processes use {other_load_percent:.0f} % of this machine; what is measured now is slower "
        "and less even than on an idle one"
    )


def header(plan: Plan, meta: dict[str, object]) -> str:
    """The measured system and machine, and the columns' names and units."""
    ratio = f"; ratio: the peer's time over ciranda's (torch {meta.get('torch')})" if plan.peers else ""
    what = "tensors, until the GPU has the result" if plan.device == "cuda" else "NumPy arrays"
    lines = [
        f"# {plan.collective}: {plan.np} ranks on {meta['cpu']}, {meta['cores']} cores; ciranda {meta['ciranda']}",
        *([f"# {meta['device']}, torch {meta['torch']}"] if plan.device == "cuda" else []),
        f"# blocking calls of named {what}; time: median, from the last rank's call to the last rank's return",
        f"# the buffer is rewritten before every call{ratio}",
        "#",
    ]
    titles = "".join(f"   {name:^44}" for name in plan.systems)
    columns = "".join(f"   {_SYSTEM}" for _ in plan.systems)
    units = "".join(f"   {_UNITS}" for _ in plan.systems)
    ratios = "".join(f" {'ratio':>8}" for _ in plan.peers)
    lines.append(f"#{'':>41}{titles}".rstrip())
    lines.append(f"#{_LEFT}{columns}{ratios}")
    lines.append(f"#{'':>41}{units}".rstrip())
    return "\n".join(lines)


def header_of(plan: Plan) -> Callable[[Plan, dict[str, object]], str]:
    """What heads the table of this plan."""
    if plan.explain:
        return way_header if plan.device == "cuda" else explain_header
    return profile_header if plan.profile else header


def explain_header(plan: Plan, meta: dict[str, object]) -> str:
    """As header(), for explanation()."""
    return "\n".join(
        (
            f"# {plan.collective}: {plan.np} ranks on {meta['cpu']}, {meta['cores']} cores; ciranda {meta['ciranda']}",
            "# each candidate algorithm; expected: by the cost model, tried: the time of its calls in trials",
            "# measured: median of calls that all went this way; agreed on by: how ranks agree on a call made again",
            "#",
            f"#{'size':>11}   {'way':<26} {'expected':>10} {'tried':>10} {'measured':>10} {'min':>10} {'#wrong':>6}",
            f"#{'':>11}   {'':<26} {'us':>10} {'us':>10} {'us':>10} {'us':>10} {'':>6}",
        )
    )


def way_header(plan: Plan, meta: dict[str, object]) -> str:
    """As header(), for way()."""
    return "\n".join(
        (
            f"# {plan.collective}: {plan.np} ranks on {meta['cpu']}, {meta['cores']} cores; ciranda {meta['ciranda']}",
            f"# {meta['device']}, torch {meta['torch']}",
            "# by which way the calls go, and why; measured: median, until the GPU has the result",
            "#",
            f"#{'size':>11}   {'way':<26} {'measured':>10} {'min':>10} {'#wrong':>6}",
            f"#{'':>11}   {'':<26} {'us':>10} {'us':>10} {'':>6}",
        )
    )


def way(row: Row) -> str:
    """One size: by which way its calls go, and why."""
    found = row.systems["ciranda"]
    figures = f"{_us(found.median_us)} {_us(found.min_us)} {found.n_wrong:>6}"
    return f" {format_size(row.n_bytes):>11}   {row.way:<26} {figures}  {row.why}"


def explanation(row: Row) -> str:
    """One size, a line for how the ranks agree on a call and one for each way to carry it out."""
    choices = [each.title for each in row.candidates if not each.is_in_place]
    fastest = min(choices, key=lambda title: row.systems[title].median_us)
    lines = [f" {format_size(row.n_bytes):>11}   agreed on by {row.agreement}"]
    for each in row.candidates:
        found = row.systems[each.title]
        expected, tried = (f"{'-':>10}" if us is None else _us(us) for us in (each.expected_us, each.taken_us))
        remarks = ["chosen"] if each.is_chosen else []
        if each.title == fastest and len(choices) > 1:
            remarks.append("fastest")
        left = f" {format_size(row.n_bytes):>11}   {each.title:<26}"
        figures = f"{expected} {tried} {_us(found.median_us)} {_us(found.min_us)} {found.n_wrong:>6}"
        lines.append(f"{left} {figures}  {', '.join(remarks)}".rstrip())
    return "\n".join(lines)


def memory(pairs: Mapping[int, _core.PairRow | None], technique: str) -> str:
    """What this rank measured at init() with each other rank, and how it writes over what they have read."""
    lines = [f"# to rank {rank}: {_pair(found)}" for rank, found in pairs.items() if found is not None]
    remark = "" if lines else "; nothing was measured at init()"
    return "\n".join([*lines, f"# written over what others have read: {technique}{remark}"])


def _pair(found: _core.PairRow) -> str:
    rates = ", ".join(f"{rate:.0f} {technique}" for technique, rate in found["hand_over_gb_per_s"].items())
    line = f"a cache line takes {found['line_ns']} ns ({found['distance']})"
    return f"{line}; GB/s of writing and reading: {rates}; of reading alone: {found['read_gb_per_s']:.0f}"


def profile_header(plan: Plan, meta: dict[str, object]) -> str:
    """As header(), for profile()."""
    columns = ("time", *STAGES)
    return "\n".join(
        (
            f"# {plan.collective}: {plan.np} ranks on {meta['cpu']}, {meta['cores']} cores; ciranda {meta['ciranda']}",
            "# time: median of calls; then of each stage on the rank that called last, and how long others took longer",
            "#",
            f"#{'size':>11} {' '.join(f'{name:>9}' for name in columns)} {'#wrong':>6}",
            f"#{'':>11} {' '.join(f'{unit:>9}' for unit in ['us'] * len(columns))}",
        )
    )


def profile(row: Row) -> str:
    """One size, and how long each stage took."""
    found = row.systems["ciranda"]
    figures = " ".join(f"{us:>9.2f}" for us in (found.median_us, *row.stages.values()))
    return f" {format_size(row.n_bytes):>11} {figures} {found.n_wrong:>6}"


def line(row: Row) -> str:
    """One size."""
    left = f" {format_size(row.n_bytes):>11} {row.count:>11} {row.dtype:>8} {row.op:>8}"
    systems = "".join(f"   {_cells(measurement)}" for measurement in row.systems.values())
    ratios = "".join(f" {row.ratio(name):>7.1f}x" for name in row.systems if name != "ciranda")
    return left + systems + ratios


def footer(results: Results) -> str:
    """Whether all was right, and what else ran on the machine."""
    n_wrong = sum(m.n_wrong for row in results.rows for m in row.systems.values())
    verdict = "no element was wrong" if n_wrong == 0 else f"{n_wrong} ELEMENTS WERE WRONG"
    others = results.meta["other_load_percent"]
    return f"# {verdict}; other processes used {others:.0f} % of the machine meanwhile"


def _cells(m: Measurement) -> str:
    return f"{_us(m.median_us)} {_us(m.min_us)} {_gb(m.algbw)} {_gb(m.busbw)} {m.n_wrong:>6}"


def _us(value: float) -> str:
    return f"{value:>10.1f}" if value < 10000 else f"{value:>10.0f}"


def _gb(value: float) -> str:
    return f"{value:>7.2f}" if value >= 0.01 else f"{value:>7.4f}"
