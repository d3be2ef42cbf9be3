"""How the launcher shares a host's cores out among its ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda.launch.cores import CpuTopology, cores_of, nodes_of, shares, spread, usable_cpus


@pytest.mark.parametrize(
    ("cores", "n_ranks", "expected"),
    [
        ([[0], [1]], 2, [{0}, {1}]),
        ([[0], [1], [2], [3]], 2, [{0, 1}, {2, 3}]),
        ([[0], [1], [2]], 2, [{0}, {1, 2}]),
        ([[0, 4], [1, 5], [2, 6]], 3, [{0, 4}, {1, 5}, {2, 6}]),
        ([[0, 2], [1, 3]], 4, [{0}, {2}, {1}, {3}]),  # fewer cores than ranks, but a thread for each
        ([[0, 2], [1, 3]], 3, [{0}, {2}, {1, 3}]),
        ([[3], [7]], 2, [{3}, {7}]),  # whatever the process may use
        ([[0], [1]], 3, [set(), set(), set()]),
        ([[0]], 1, [{0}]),
    ],
)
def test_cores_are_shared_out(cores: list[list[int]], n_ranks: int, expected: list[set[int]]) -> None:
    assert shares(cores, n_ranks) == expected


@given(st.lists(st.integers(1, 4), min_size=1, max_size=64), st.integers(1, 80))
def test_nobody_gets_anothers_and_nothing_is_left(threads: list[int], n_ranks: int) -> None:
    first = [sum(threads[:i]) for i in range(len(threads))]
    cores = [list(range(start, start + n)) for start, n in zip(first, threads, strict=True)]
    given_out = shares(cores, n_ranks)
    assert len(given_out) == n_ranks
    if n_ranks > sum(threads):
        assert not any(given_out)
        return
    assert sorted(cpu for share in given_out for cpu in share) == list(range(sum(threads)))
    if n_ranks <= len(cores):
        n_cores = [sum(1 for core in cores if set(core) <= share) for share in given_out]
        assert sum(n_cores) == len(cores), "a core is not divided where there is one for each"
        assert max(n_cores) - min(n_cores) <= 1


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ({0: (0, 0, 0), 1: (0, 0, 1)}, [[0], [1]]),
        ({0: (0, 0, 0), 1: (0, 1, 0), 2: (0, 0, 0), 3: (0, 1, 0)}, [[0, 2], [1, 3]]),  # packages, threads
        ({0: (0, 0, 0), 1: (0, 1, 0), 2: (0, 0, 1), 3: (0, 1, 1)}, [[0], [2], [1], [3]]),  # packages that take turns
        ({0: (0, 0, 0), 1: (1, 0, 1), 2: (0, 0, 2), 3: (1, 0, 3)}, [[0], [2], [1], [3]]),  # nodes that do, in a package
        ({2: (-1, -1, -1), 5: (-1, -1, -1)}, [[2], [5]]),  # nothing is known
    ],
)
def test_threads_of_a_core_and_cores_of_a_node_go_together(
    cpus: dict[int, tuple[int, int, int]], expected: list[list[int]]
) -> None:
    assert cores_of({cpu: CpuTopology(*at) for cpu, at in cpus.items()}) == expected


@pytest.mark.parametrize(
    ("nodes", "n_ranks", "expected"),
    [
        ([[0, 1], [2, 3]], 2, [{0, 1}, {2, 3}]),
        ([[0, 1], [2, 3]], 4, [{0, 1}, {0, 1}, {2, 3}, {2, 3}]),
        ([[0, 1], [2, 3]], 3, [{0, 1}, {2, 3}, {2, 3}]),
        ([[0], [1, 2, 3]], 4, [{0}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}]),  # by their CPUs
        ([[0], [1], [2], [3]], 2, [{0, 1}, {2, 3}]),  # no core is left unused
        ([[0], [1]], 6, [{0}] * 3 + [{1}] * 3),  # more ranks than CPUs
        ([[0, 1, 2, 3]], 2, [set(), set()]),
        ([], 2, [set(), set()]),
    ],
)
def test_ranks_are_spread_over_nodes(nodes: list[list[int]], n_ranks: int, expected: list[set[int]]) -> None:
    assert spread(nodes, n_ranks) == expected


@given(st.lists(st.integers(1, 16), min_size=2, max_size=8), st.integers(1, 80))
def test_each_rank_has_whole_nodes_in_order(sizes: list[int], n_ranks: int) -> None:
    first = [sum(sizes[:i]) for i in range(len(sizes))]
    nodes = [list(range(start, start + n)) for start, n in zip(first, sizes, strict=True)]
    given_out = spread(nodes, n_ranks)
    assert len(given_out) == n_ranks
    assert all(given_out)
    assert all(share.issuperset(node) or share.isdisjoint(node) for share in given_out for node in nodes)
    assert [min(share) for share in given_out] == sorted(min(share) for share in given_out)
    if n_ranks < len(nodes):
        assert sorted(cpu for share in given_out for cpu in share) == list(range(sum(sizes)))
        return
    for node, size in zip(nodes, sizes, strict=True):
        assert abs(given_out.count(set(node)) - n_ranks * size / sum(sizes)) < 1


def test_the_system_says_which_cpu_is_where(tmp_path: Path) -> None:
    for cpu, (node, package, core) in {0: (0, 0, 0), 1: (0, 0, 0), 2: (1, 0, 4), 11: (10, 1, 0)}.items():
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / f"node{node}").mkdir()
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    (tmp_path / "cpu12").mkdir()
    cpus = usable_cpus(str(tmp_path), [12, 11, 2, 1, 0, 13])
    nowhere = CpuTopology(-1, -1, -1)
    assert cpus == {0: (0, 0, 0), 1: (0, 0, 0), 2: (1, 0, 4), 11: (10, 1, 0), 12: nowhere, 13: nowhere}
    assert cores_of(cpus) == [[12], [13], [0, 1], [2], [11]]
    assert nodes_of(cpus) == [[12, 13], [0, 1], [2], [11]]


def test_this_machine_has_cores() -> None:
    cpus = usable_cpus()
    assert set(cpus) == os.sched_getaffinity(0)
    assert sorted(cpu for core in cores_of(cpus) for cpu in core) == sorted(cpus)
    assert sorted(cpu for node in nodes_of(cpus) for cpu in node) == sorted(cpus)
