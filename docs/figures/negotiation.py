"""Draws docs/figures/negotiation.png: what agreeing on a training step costs, by the number of ranks.

build/bench/benchmarks/cpp/negotiation_bench > FILE; python docs/figures/negotiation.py FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

INK, RED, BLUE = "#22333b", "#d1495b", "#00798c"
COLORS = {"first": RED, "cached": BLUE}
LABELS = {"first": "first step: signatures", "cached": "later steps: slots"}
Row = dict[str, float | str]


def per_rank(row: Row) -> float:
    """Return the messages that a rank other than the coordinator's sends and receives."""
    return (float(row["messages_in"]) + float(row["messages_out"])) / (float(row["ranks"]) - 1)


def computing(row: Row) -> float:
    """Return what the coordinator computes in a step, in milliseconds."""
    return (float(row["reading_us"]) + float(row["writing_us"]) + float(row["sending_us"])) / 1e3


def draw(axes: Axes, rows: list[Row], title: str, values: dict[str, list[float]], labels: dict[str, str]) -> None:
    """Draw one panel: a line for each path, over the number of ranks."""
    ranks = sorted({int(row["ranks"]) for row in rows})
    for path, ys in values.items():
        axes.plot(ranks, ys, color=COLORS[path], marker="o", markersize=4, label=labels[path])
    axes.set(xscale="log", yscale="log", xlabel="ranks", title=title)
    axes.xaxis.set_major_locator(FixedLocator(ranks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Read what was measured, draw, save."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    rows: list[Row] = [row for row in map(json.loads, lines) if row["tensors"] == 100]
    plt.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.titlesize": 10})
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    by_path = {path: [row for row in rows if row["path"] == path] for path in COLORS}
    draw(
        panels[0],
        rows,
        "Messages to and from one rank, a step",
        {path: [per_rank(row) for row in of_path] for path, of_path in by_path.items()},
        LABELS,
    )
    panels[0].set_ylim(bottom=1, top=1000)
    panels[0].legend(frameon=False)
    draw(
        panels[1],
        rows,
        "The coordinator's computing, ms a step",
        {path: [computing(row) for row in of_path] for path, of_path in by_path.items()},
        LABELS,
    )
    draw(
        panels[2],
        rows,
        "From the last announcement until all know, ms",
        {
            path: [(float(row["wait_us"]) + float(row["tail_us"])) / 1e3 for row in of_path]
            for path, of_path in by_path.items()
        },
        LABELS,
    )
    panels[2].plot(
        sorted({int(row["ranks"]) for row in rows}),
        [float(row["wait_us"]) / 1e3 for row in by_path["cached"]],
        color=INK,
        linestyle=":",
        label="the network alone",
    )
    panels[2].legend(frameon=False)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
