"""What this rank has done so far, as numbers: for TensorBoard, W&B, MLflow, or any other logger.

    from ciranda import metrics

    for name, value in metrics.snapshot().items():
        writer.add_scalar(name, value, step)

The same numbers, of all ranks, are in `ciranda top` and for Prometheus in `ciranda run --metrics`.
"""

from __future__ import annotations

from ciranda._basics import engine
from ciranda.launch.page import read_bytes, use_of

__all__ = ["snapshot"]


def snapshot(prefix: str = "ciranda/") -> dict[str, float]:
    """Return this rank's counters since it joined the world, by name; they only grow, but for the memory.

    No rank is asked, and nothing waits. Names are those of `ciranda top --json` and of OpenMetrics, without tensors.

    Args:
        prefix: what every name begins with.

    Raises:
        NotInitializedError: this process is in no world.
    """
    counters = read_bytes(engine().counter_page())
    collectives = counters["collectives"]
    found: dict[str, float] = {
        "steps": counters["steps"],
        "stalls": counters["stalls"],
        "seconds": counters["seconds"],
        "waited_seconds": counters["waited_seconds"],
        "calls": sum(each["calls"] for each in collectives.values()),
        "bytes": sum(each["bytes"] for each in collectives.values()),
        **use_of(counters["pid"]),
    }
    for collective, values in collectives.items():
        found.update({f"{collective}/{name}": value for name, value in values.items()})
    return {prefix + name: value for name, value in found.items()}
