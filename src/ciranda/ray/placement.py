"""The bundles that Ray is asked for, and the bundle of each worker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ciranda.launch.errors import HostsError
from ciranda.launch.hosts import checked_size

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True)
class Plan:
    """What to ask for: each bundle is within one node; the strategy says how bundles share nodes."""

    bundles: list[dict[str, float]]
    strategy: str
    bundle_of_worker: list[int]

    @property
    def words(self) -> str:
        """For an error: how much of what."""
        total = {name: sum(bundle[name] for bundle in self.bundles) for name in self.bundles[0]}
        return f"{len(self.bundles)} bundles ({self.strategy}) with {_amounts(total)} in all"


def plan(np: int, hosts: int | None, resources: Mapping[str, float], strategy: str) -> Plan:
    """Return a bundle for each worker; with ``hosts`` one for each host, with the same number of workers on each.

    Args:
        np: the number of workers.
        hosts: None, or the number of nodes to use.
        resources: those of each worker, by Ray's names.
        strategy: one of STRATEGIES; with ``hosts`` each bundle is on a node of its own.

    Raises:
        HostsError: the numbers or the strategy make no sense.
    """
    checked_size(np)
    if strategy not in STRATEGIES:
        raise HostsError(f"placement={strategy!r}: must be {', '.join(STRATEGIES)}, or a placement group")
    wanted = {name: amount for name, amount in resources.items() if amount > 0}
    if not wanted or any(amount < 0 for amount in resources.values()):
        raise HostsError(f"a worker must have some of a resource, and not less than 0 of any: {dict(resources)}")
    if hosts is None:
        return Plan([dict(wanted) for _ in range(np)], strategy, list(range(np)))
    if hosts < 1 or np % hosts:
        raise HostsError(f"{np} workers cannot be divided evenly between {hosts} hosts")
    each = np // hosts
    bundle = {name: amount * each for name, amount in wanted.items()}
    return Plan([dict(bundle) for _ in range(hosts)], "STRICT_SPREAD", [rank // each for rank in range(np)])


def grouped(node_of_worker: list[str]) -> list[int]:
    """Return the workers in an order in which those of a node follow one another: the order of ranks."""
    nodes = list(dict.fromkeys(node_of_worker))
    return sorted(range(len(node_of_worker)), key=lambda worker: nodes.index(node_of_worker[worker]))


def cluster_words(total: Mapping[str, float], free: Mapping[str, float], n_nodes: int) -> str:
    """Describe a cluster, for an error: what of its resources there is, and what of them is free."""
    names = [name for name in ("CPU", "GPU") if total.get(name)]
    amounts = _amounts({name: total[name] for name in names}) or "no CPU"
    left = _amounts({name: free.get(name, 0) for name in names}) or "none"
    nodes = "1 node" if n_nodes == 1 else f"{n_nodes} nodes"
    return f"the cluster has {amounts} on {nodes}, of which {left} are free"


def _amounts(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())
