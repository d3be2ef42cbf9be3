"""Which bundles Ray is asked for, and in which order its workers become ranks: decisions without Ray."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ciranda.launch.errors import HostsError
from ciranda.ray.placement import cluster_words, grouped, plan

CPU = {"CPU": 2.0, "GPU": 0.0}


def test_each_worker_has_a_bundle_of_what_it_needs() -> None:
    made = plan(3, None, {"CPU": 2.0, "GPU": 0.5}, "SPREAD")
    assert made.bundles == [{"CPU": 2.0, "GPU": 0.5}] * 3
    assert made.strategy == "SPREAD"
    assert made.bundle_of_worker == [0, 1, 2]
    assert made.words == "3 bundles (SPREAD) with 6 CPU and 1.5 GPU in all"


def test_what_is_not_needed_is_not_asked_for() -> None:
    assert plan(1, None, CPU, "PACK").bundles == [{"CPU": 2.0}]


def test_hosts_have_a_bundle_each_on_nodes_of_their_own() -> None:
    made = plan(6, 2, CPU, "PACK")
    assert made.bundles == [{"CPU": 6.0}] * 2
    assert made.strategy == "STRICT_SPREAD"
    assert made.bundle_of_worker == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("np", "hosts", "resources", "strategy", "words"),
    [
        (0, None, CPU, "PACK", "must be 1 or more"),
        (3, 2, CPU, "PACK", "3 workers cannot be divided evenly between 2 hosts"),
        (2, 0, CPU, "PACK", "2 workers cannot be divided evenly between 0 hosts"),
        (2, None, {"CPU": 0.0}, "PACK", "must have some of a resource"),
        (2, None, {"CPU": 1.0, "GPU": -1.0}, "PACK", "not less than 0"),
        (2, None, CPU, "pack", "placement='pack': must be PACK, SPREAD, STRICT_PACK, STRICT_SPREAD, or"),
    ],
)
def test_numbers_that_make_no_sense(
    np: int, hosts: int | None, resources: dict[str, float], strategy: str, words: str
) -> None:
    with pytest.raises(HostsError, match=words):
        plan(np, hosts, resources, strategy)


def test_workers_of_a_node_follow_one_another_as_ranks() -> None:
    assert grouped(["b", "a", "b", "c", "a"]) == [0, 2, 1, 4, 3]
    assert grouped([]) == []


def test_a_cluster_is_described_by_what_it_has_and_what_is_free() -> None:
    assert cluster_words({"CPU": 4.0, "memory": 1e9}, {"CPU": 0.5}, 1) == (
        "the cluster has 4 CPU on 1 node, of which 0.5 CPU are free"
    )
    assert cluster_words({"CPU": 4.0, "GPU": 2.0}, {"GPU": 2.0}, 3) == (
        "the cluster has 4 CPU and 2 GPU on 3 nodes, of which 0 CPU and 2 GPU are free"
    )
    assert cluster_words({}, {}, 0) == "the cluster has no CPU on 0 nodes, of which none are free"


def test_ray_is_not_imported_before_it_is_used() -> None:
    code = "import sys, ciranda, ciranda.ray; ciranda.init; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
