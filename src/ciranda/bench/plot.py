"""Results as a picture: time and bus bandwidth by size, both axes logarithmic."""

from __future__ import annotations

from pathlib import Path

from ciranda.bench.plan import Results, format_size

_COLOURS = ("#d1495b", "#00798c", "#edae49", "#66a182")


def save(results: Results, path: Path) -> None:
    """Write a PNG (or what the suffix says). Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    sizes = [row.n_bytes for row in results.rows]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained")
    for name, colour in zip(results.meta["systems"], _COLOURS * len(results.meta["systems"]), strict=False):
        found = [row.systems[name] for row in results.rows]
        left.plot(sizes, [m.median_us for m in found], "o-", color=colour, label=f"{name}, median", markersize=4)
        left.plot(sizes, [m.min_us for m in found], ":", color=colour, label=f"{name}, minimum")
        right.plot(sizes, [m.busbw for m in found], "o-", color=colour, markersize=4)
    left.set(title="time of a blocking call", ylabel="microseconds")
    right.set(title="bus bandwidth", ylabel="GB/s")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="bytes")
        axes.set_xticks(sizes[:: -(-len(sizes) // 7)])
        axes.set_xticklabels([format_size(size) for size in axes.get_xticks()])
        axes.minorticks_off()
        axes.grid(alpha=0.3, which="both")
    meta = results.meta
    if meta.get("limit_gb_per_s"):
        right.axhline(
            meta["limit_gb_per_s"], color="#555555", linestyle="--", label="limit of large calls (ciranda tune)"
        )
    curves, limits = left.get_legend_handles_labels(), right.get_legend_handles_labels()
    figure.legend(curves[0] + limits[0], curves[1] + limits[1], loc="outside right upper", frameon=False)
    figure.suptitle(
        f"{meta['collective']}, {meta['dtype']}, {meta['np']} ranks on {meta['cpu']}, {meta['cores']} cores",
        fontsize=12,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
