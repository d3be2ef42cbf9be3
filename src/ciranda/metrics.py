"""What this rank has done so far, as numbers: for TensorBoard, W&B, MLflow, or any other logger.

    from ciranda import metrics

    for name, value in metrics.snapshot().items():
        writer.add_scalar(name, value, step)

`over_ranks` has them of all ranks, where every rank calls it. `ciranda top` shows them of each rank, and Prometheus
those of `ciranda run --metrics`, without a call.
"""

from __future__ import annotations

from ciranda._basics import engine
from ciranda._frameworks.objects import allgather_object
from ciranda.launch.page import read_bytes
from ciranda.launch.process_signs import use_of
from ciranda.process_sets import ProcessSet, global_process_set

__all__ = ["over_ranks", "snapshot"]


def snapshot(prefix: str = "ciranda/") -> dict[str, float]:
    """Return this rank's counters since it joined the world, by name; they only grow, but for memory and queues.

    No rank is asked, and nothing waits. Names are those of `ciranda top --json` and of OpenMetrics, without tensors.
    ``process_sets/3/`` and so on are calls of the process set with that id, which are among the others as well.

    Args:
        prefix: what every name begins with.

    Raises:
        NotInitializedError: this process is in no world.
    """
    counters = read_bytes(engine().counter_page())
    found: dict[str, float] = {
        "steps": counters["steps"],
        "stalls": counters["stalls"],
        "seconds": counters["seconds"],
        "waited_seconds": counters["waited_seconds"],
        "calls": counters["calls"],
        "bytes": counters["bytes"],
        **use_of(counters["pid"]),
        **{f"links/{name}": value for name, value in counters["all_links"].items()},
        **{f"memory/{name}_bytes": value for name, value in counters["memory_bytes_of"].items()},
    }
    for collective, values in counters["collectives"].items():
        found.update({f"{collective}/{name}": value for name, value in values.items() if name != "sizes"})
    for number, values in counters["process_sets"].items():
        found.update({f"process_sets/{number}/{name}": value for name, value in values.items()})
    return {prefix + name: value for name, value in found.items()}


def over_ranks(prefix: str = "ciranda/", process_set: ProcessSet = global_process_set) -> dict[str, float]:
    """Return the least, the mean and the most of each number of `snapshot` over the ranks, on all of them.

    A collective: every rank of the process set calls it. What a rank does not count, such as a collective that it has
    not called, is 0 there. Names end with ``/min``, ``/mean`` and ``/max``.

    Args:
        prefix: what every name begins with.
        process_set: the ranks.

    Raises:
        NotInitializedError: this process is in no world.
    """
    ranks = allgather_object(snapshot(prefix), name="ciranda.metrics", process_set=process_set)
    found: dict[str, float] = {}
    for name in sorted(set().union(*ranks)):
        values = [each.get(name, 0) for each in ranks]
        found |= {f"{name}/min": min(values), f"{name}/mean": sum(values) / len(values), f"{name}/max": max(values)}
    return found
