"""Draws docs/figures/negotiation.png: what agreeing on a training step costs, by the number of ranks and of tensors.

python docs/figures/negotiation.py FILE, where FILE holds what negotiation_bench prints, of several runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

INK, RED, BLUE, GREEN, GOLD = "#22333b", "#d1495b", "#00798c", "#5f9e6e", "#c98b2b"
COLORS = {"first": RED, "cached": BLUE, "groups": GOLD, "relays": GREEN}
LABELS = {
    "first": "first step: signatures",
    "cached": "slots",
    "groups": "groups by number",
    "relays": "and through relays",
}
Row = dict[str, float | str]


def from_a_host(row: Row) -> float:
    """Return the messages that the busiest host sends towards the coordinator."""
    return float(row["most_from_a_host"])


def computing(row: Row) -> float:
    """Return what the coordinator computes in a step, in milliseconds."""
    return (float(row["reading_us"]) + float(row["writing_us"]) + float(row["sending_us"])) / 1e3


def until_all_know(row: Row) -> float:
    """Return the time from the last announcement until all ranks know, in milliseconds."""
    return (float(row["wait_us"]) + float(row["tail_us"])) / 1e3


def draw(axes: Axes, rows: list[Row], over: str, title: str, value: Callable[[Row], float]) -> None:
    """Draw one panel: a line for each path, over the number of ranks or tensors."""
    for path, color in COLORS.items():
        points = sorted((float(row[over]), value(row)) for row in rows if row["path"] == path)
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=4, label=LABELS[path])
    axes.set(xscale="log", yscale="log", xlabel=over, title=title)
    axes.xaxis.set_major_locator(FixedLocator(sorted({float(row[over]) for row in rows})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Read what was measured, draw, save."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    rows: list[Row] = [json.loads(line) for line in lines]
    by_ranks = [row for row in rows if row["tensors"] == 100 and row["step_mib"] == 0]
    by_tensors = [row for row in rows if row["step_mib"] != 0]
    plt.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.titlesize": 10})
    figure, panels = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    draw(panels[0][0], by_ranks, "ranks", "Messages of the busiest host, a step", from_a_host)
    draw(panels[0][1], by_ranks, "ranks", "The coordinator's computing, ms a step", computing)
    draw(panels[1][0], by_ranks, "ranks", "From the last announcement until all know, ms", until_all_know)
    most_ranks = int(max(float(row["ranks"]) for row in by_tensors))
    draw(panels[1][1], by_tensors, "tensors", f"Computing by tensors, {most_ranks:,} ranks, ms", computing)
    panels[0][1].legend(frameon=False)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
