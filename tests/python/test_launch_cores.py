"""How the launcher shares a host's cores out among its ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda.launch.cores import group, shares, usable_cores


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
    ("places", "expected"),
    [
        ({0: (0, 0), 1: (0, 1)}, [[0], [1]]),
        ({0: (0, 0), 1: (1, 0), 2: (0, 0), 3: (1, 0)}, [[0, 2], [1, 3]]),  # two packages, two threads a core
        ({0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, 1)}, [[0], [2], [1], [3]]),  # packages that take turns
        ({2: (-1, -1), 5: (-1, -1)}, [[2], [5]]),  # nothing is known
    ],
)
def test_threads_of_a_core_and_cores_of_a_package_go_together(
    places: dict[int, tuple[int, int]], expected: list[list[int]]
) -> None:
    assert group(places) == expected


def test_this_machine_has_cores() -> None:
    assert all(usable_cores())
