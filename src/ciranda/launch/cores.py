"""Which cores each rank of a host may use. Standard library only: the agent imports it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

_CPUS = "/sys/devices/system/cpu"
_NODE = re.compile(r"node(\d+)")

Core = Sequence[int]  # the CPUs, as the system counts them, that are threads of one core


class CpuTopology(NamedTuple):
    """The position of a CPU, by the system's numbers; -1 if the system does not report one."""

    node: int  # of memory that is near
    package: int
    core: int


def shares(cores: Sequence[Core], n_ranks: int) -> list[set[int]]:
    """Divide the cores: neighbours stay together, and no rank gets two more than another.

    If there are fewer cores than ranks, the threads of a core are divided. Without a thread for each rank, no rank is
    bound, because the system schedules better then, and each set is empty.
    """
    units = [list(core) for core in cores]
    if len(units) < n_ranks:
        units = [[cpu] for core in cores for cpu in core]
    if len(units) < n_ranks:
        return [set() for _ in range(n_ranks)]
    return [{cpu for unit in part for cpu in unit} for part in _parts(units, n_ranks)]


def spread(nodes: Sequence[Collection[int]], n_ranks: int) -> list[set[int]]:
    """Give each rank all CPUs of a node; of several, where there are fewer ranks than nodes.

    Neighbours stay together, and each node gets ranks in proportion to its CPUs. With one node no rank is bound, and
    each set is empty.
    """
    if len(nodes) < 2:
        return [set() for _ in range(n_ranks)]
    if n_ranks < len(nodes):
        return [{cpu for node in part for cpu in node} for part in _parts(nodes, n_ranks)]
    by_cpu = [node for node in nodes for _ in node]
    return [set(by_cpu[(2 * rank + 1) * len(by_cpu) // (2 * n_ranks)]) for rank in range(n_ranks)]


def usable_cpus(root: str = _CPUS, cpus: Iterable[int] | None = None) -> dict[int, CpuTopology]:
    """Where the CPUs are that this process may use."""
    return {cpu: _topology(f"{root}/cpu{cpu}") for cpu in sorted(os.sched_getaffinity(0) if cpus is None else cpus)}


def cores_of(cpus: Mapping[int, CpuTopology]) -> list[list[int]]:
    """Put the CPUs of one core together, those of one node and of one package next to each other.

    A CPU whose core the system does not report is a core by itself.
    """
    cores: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(cpus):
        at = cpus[cpu]
        cores.setdefault((at.package, at.core, cpu if at.core < 0 else -1), []).append(cpu)
    return sorted(cores.values(), key=lambda core: (cpus[core[0]][:2], core[0]))


def nodes_of(cpus: Mapping[int, CpuTopology]) -> list[list[int]]:
    """Group the CPUs by node; those whose node the system does not report count as one node."""
    nodes: dict[int, list[int]] = {}
    for cpu in sorted(cpus):
        nodes.setdefault(cpus[cpu].node, []).append(cpu)
    return [nodes[node] for node in sorted(nodes)]


def _parts(units: Sequence[Collection[int]], n_ranks: int) -> list[Sequence[Collection[int]]]:
    n = len(units)
    return [units[rank * n // n_ranks : (rank + 1) * n // n_ranks] for rank in range(n_ranks)]


def _topology(folder: str) -> CpuTopology:
    topology = f"{folder}/topology"
    return CpuTopology(_node(folder), _number(f"{topology}/physical_package_id"), _number(f"{topology}/core_id"))


def _node(folder: str) -> int:
    try:
        names = os.listdir(folder)
    except OSError:
        return -1
    return max((int(match[1]) for name in names if (match := _NODE.fullmatch(name))), default=-1)


def _number(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1
