"""Who knows how the ranks meet, and which place each has: decisions without any process."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda import _core
from ciranda._ways_to_meet import Way, way_to_meet
from ciranda.launch.environment import JOB_IDENTITY, forwarded
from ciranda.torch.distributed.places import Claim, Place, places

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "size_of_group", "way"),
    [
        ({}, 1, Way.ENGINE),
        (TORCHRUN, 1, Way.TORCH),
        (TORCHRUN, 2, Way.GROUP),
        ({}, 2, Way.GROUP),
        ({**TORCHRUN, "WORLD_SIZE": "1"}, 1, Way.ENGINE),
        ({**TORCHRUN, "MASTER_PORT": ""}, 1, Way.ENGINE),  # which the engine refuses
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1"}, 1, Way.ENGINE),
        ({**TORCHRUN, "CIRANDA_STORE": "127.0.0.1:1"}, 2, Way.ENGINE),
        ({**TORCHRUN, "HOROVOD_SIZE": "2"}, 2, Way.ENGINE),
        ({**TORCHRUN, "CIRANDA_SIZE": "1"}, 2, Way.ENGINE),
        ({**TORCHRUN, "CIRANDA_ENGINE": "none"}, 2, Way.ENGINE),
    ],
)
def test_who_is_asked(environ: dict[str, str], size_of_group: int, way: Way) -> None:
    assert way_to_meet(environ, size_of_group) is way


def test_who_has_met_meets_again() -> None:
    assert way_to_meet({"WORLD_SIZE": "2"}, has_met=True) is Way.AGAIN
    assert way_to_meet(TORCHRUN, has_met=True) is Way.AGAIN
    assert way_to_meet(TORCHRUN, 2, has_met=True) is Way.GROUP  # which may be another by now
    assert way_to_meet({"CIRANDA_ENGINE": "none"}, has_met=True) is Way.ENGINE


def test_no_rank_inherits_what_another_launcher_calls_its_processes() -> None:
    names = [name for name, _ in _core.launcher_variables()]
    assert {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"} <= set(names)
    assert not forwarded({name.encode(): b"2" for name in names}, remote=False)
    for name in names:
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in JOB_IDENTITY), name


def test_places_of_hosts_that_are_not_alike() -> None:
    claims = [Claim("a"), Claim("b"), Claim("a"), Claim("c"), Claim("a"), Claim("b")]
    assert places(claims) == [
        Place(0, 3, 0, 3),
        Place(0, 2, 1, 3),
        Place(1, 3, 0, 2),
        Place(0, 1, 2, 3),
        Place(2, 3, 0, 1),
        Place(1, 2, 1, 2),
    ]


def test_what_launchers_say_of_local_ranks_counts() -> None:
    assert [each.local_rank for each in places([Claim("a", 1), Claim("a", 0), Claim("a")])] == [2, 0, 1]


@given(st.lists(st.builds(Claim, st.sampled_from("abcd"), st.none() | st.integers(0, 3)), min_size=1, max_size=12))
def test_places_number_every_host_and_every_row_of_hosts_from_0(claims: list[Claim]) -> None:
    placed = places(claims)
    for host in {claim.host for claim in claims}:
        here = [place for place, claim in zip(placed, claims, strict=True) if claim.host == host]
        assert sorted(place.local_rank for place in here) == list(range(len(here)))
        assert {place.local_size for place in here} == {len(here)}
    for local_rank in {place.local_rank for place in placed}:
        row = [place for place in placed if place.local_rank == local_rank]
        assert sorted(place.cross_rank for place in row) == list(range(len(row)))
        assert {place.cross_size for place in row} == {len(row)}
