"""Which cores each rank of a host may use. Standard library only: the agent imports it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/{}"

Core = Sequence[int]  # the CPUs, as the system counts them, that are threads of one core


def shares(cores: Sequence[Core], n_ranks: int) -> list[set[int]]:
    """Share the cores out: neighbours go together, and no rank gets two more than another.

    Threads of a core are shared out where there are fewer cores than ranks. Without even a thread for each rank nobody
    is bound: then the system does better, and each set is empty.
    """
    units = [list(core) for core in cores]
    if len(units) < n_ranks:
        units = [[cpu] for core in cores for cpu in core]
    if len(units) < n_ranks:
        return [set() for _ in range(n_ranks)]
    n = len(units)
    return [
        {cpu for unit in units[rank * n // n_ranks : (rank + 1) * n // n_ranks] for cpu in unit}
        for rank in range(n_ranks)
    ]


def usable_cores() -> list[list[int]]:
    """The cores that this process may use, those of one package next to each other.

    Where the system does not say what belongs together, every CPU is a core.
    """
    cpus = sorted(os.sched_getaffinity(0))
    places = {cpu: (_number(cpu, "physical_package_id"), _number(cpu, "core_id")) for cpu in cpus}
    return group(places)


def group(places: Mapping[int, tuple[int, int]]) -> list[list[int]]:
    """Put the CPUs of one package and core together; a core of -1 is none: such a CPU stands by itself."""
    cores: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(places):
        package, core = places[cpu]
        cores.setdefault((package, core, cpu if core < 0 else -1), []).append(cpu)
    return sorted(cores.values(), key=lambda core: (places[core[0]][0], core[0]))


def _number(cpu: int, what: str) -> int:
    try:
        with open(_TOPOLOGY.format(cpu, what), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1
