"""Draws docs/figures/way_of_a_tensor.svg: the stages that a gradient passes, on two ranks side by side.

python docs/figures/way_of_a_tensor.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

STAGES = (
    ("framework", "a gradient is ready, while the backward pass goes on"),
    ("bindings", "pointer, shape, dtype, name: no copy"),
    ("call", "checked; a handle goes back to the caller"),
    ("agree", "are all ranks ready, and do they agree?"),
    ("execute", "which tensors travel together: a plan, no copying"),
    ("collective", "pack, reduce, unpack through cache-sized slots"),
    ("call", "the handle is fulfilled, or fails with one clear error"),
)
INK, PALE, RED, BLUE, SAND = "#22333b", "#f7f4ef", "#d1495b", "#00798c", "#edae49"
WIDTH, HEIGHT, GAP = 5.3, 0.74, 0.34
LEFT, RIGHT = 0.2, 7.7


def main() -> None:
    """Draw and save."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    plt.rcParams["svg.hashsalt"] = "ciranda"  # the same file each time
    figure, axes = plt.subplots(figsize=(10.6, 6.6))
    axes.set(xlim=(0, 13.2), ylim=(-0.5, 8.3))
    axes.axis("off")
    tops = [7.4 - i * (HEIGHT + GAP) for i in range(len(STAGES))]
    for x, rank in ((LEFT, 0), (RIGHT, 1)):
        axes.text(x + WIDTH / 2, 8.0, f"rank {rank}", ha="center", va="center", fontsize=13, color=INK, weight="bold")
        for top, (name, what) in zip(tops, STAGES, strict=True):
            _box(axes, x, top, name, what)
        for top in tops[:-1]:
            _arrow(axes, (x + WIDTH / 2, top - HEIGHT), (x + WIDTH / 2, top - HEIGHT - GAP), INK)
    _between(axes, tops[3], "a number each:\nready", "ordered log:\nexecute these", BLUE)
    _between(axes, tops[5], "shared memory\nor TCP", "", RED)
    axes.text(
        6.6,
        -0.28,
        "The first time a name appears, its signature travels once; from then on a number says that it is ready.",
        ha="center",
        fontsize=9.5,
        color=INK,
        style="italic",
    )
    figure.savefig(path, bbox_inches="tight", facecolor="white", dpi=130, metadata=_no_date(path))


def _no_date(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix == ".svg" else None


def _box(axes: plt.Axes, x: float, top: float, name: str, what: str) -> None:
    edge = {"agree": BLUE, "collective": RED, "framework": SAND}.get(name, INK)
    box = FancyBboxPatch(
        (x, top - HEIGHT), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.12", fc=PALE, ec=edge, lw=1.6
    )
    axes.add_patch(box)
    axes.text(x + 0.18, top - 0.24, name, va="center", fontsize=11, color=INK, weight="bold")
    axes.text(x + 0.18, top - 0.54, what, va="center", fontsize=8.4, color=INK)


def _arrow(
    axes: plt.Axes, start: tuple[float, float], end: tuple[float, float], colour: str, style: str = "-|>"
) -> None:
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle=style, mutation_scale=12, lw=1.4, color=colour, shrinkA=1, shrinkB=1)
    )


def _between(axes: plt.Axes, top: float, above: str, below: str, colour: str) -> None:
    middle = top - HEIGHT / 2
    start, end = (LEFT + WIDTH, middle), (RIGHT, middle)
    _arrow(axes, start, end, colour, "<|-|>")
    axes.text((start[0] + end[0]) / 2, middle + 0.12, above, ha="center", va="bottom", fontsize=8.6, color=colour)
    axes.text((start[0] + end[0]) / 2, middle - 0.12, below, ha="center", va="top", fontsize=8.6, color=colour)


if __name__ == "__main__":
    main()
