"""Who knows how the ranks meet, and which slot each has: decisions without any process."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda import _core
from ciranda._endpoints import by_endpoints
from ciranda._local_ranks import Claim, LocalRanks, local_ranks
from ciranda._ways_to_meet import Way, slot_of, way_to_meet
from ciranda.errors import InvalidArgumentError
from ciranda.launch.environment import JOB_IDENTITY, forwarded

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
PADDLE = {
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ID": "2",
    "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:7001,127.0.0.2:7001,127.0.0.1:7002",
}


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
        (PADDLE, 1, Way.PADDLE),
        ({**PADDLE, "CIRANDA_SIZE": "3"}, 1, Way.ENGINE),
        ({**PADDLE, "PADDLE_TRAINERS_NUM": "1"}, 1, Way.ENGINE),
        ({**PADDLE, "PADDLE_TRAINER_ENDPOINTS": ""}, 1, Way.ENGINE),  # which the engine refuses
    ],
)
def test_who_is_asked(environ: dict[str, str], size_of_group: int, way: Way) -> None:
    assert way_to_meet(environ, size_of_group) is way


def test_who_has_met_meets_again() -> None:
    assert way_to_meet({"WORLD_SIZE": "2"}, has_met=True) is Way.AGAIN
    assert way_to_meet(TORCHRUN, has_met=True) is Way.AGAIN
    assert way_to_meet(TORCHRUN, 2, has_met=True) is Way.GROUP  # which may be another by now
    assert way_to_meet({"CIRANDA_ENGINE": "none"}, has_met=True) is Way.ENGINE


def test_slots_differ_by_rank_and_job() -> None:
    slots = [TORCHRUN, {**TORCHRUN, "RANK": "1"}, {**TORCHRUN, "MASTER_PORT": "29501"}]
    slots += [PADDLE, {**PADDLE, "PADDLE_TRAINER_ID": "1"}]
    assert len({slot_of(environ) for environ in slots}) == 5
    assert slot_of({**TORCHRUN, "PATH": "/bin"}) == slot_of(TORCHRUN)


def test_the_engine_knows_the_slot_that_its_own_variables_describe() -> None:
    launched = {"CIRANDA_STORE": "127.0.0.1:1", "CIRANDA_JOB": "a", "CIRANDA_RANK": "0", "CIRANDA_SIZE": "2"}
    for environ in ({}, launched, {**TORCHRUN, "WORLD_SIZE": "1"}, {**TORCHRUN, "CIRANDA_ENGINE": "none"}):
        assert slot_of(environ) is None


def test_paddles_endpoints_are_enough() -> None:
    told = by_endpoints({**PADDLE, "CIRANDA_SECRET_FILE": "/nowhere"})
    assert {name: told[f"CIRANDA_{name}"] for name in ("RANK", "SIZE", "STORE", "SECRET_FILE")} == {
        "RANK": "2",
        "SIZE": "3",
        "STORE": "127.0.0.1:7001",
        "SECRET_FILE": "/nowhere",
    }
    assert [told[f"CIRANDA_{name}"] for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")] == list(
        "1201"
    )
    others = by_endpoints({**PADDLE, "PADDLE_TRAINER_ID": "1", "CIRANDA_SECRET_FILE": "/nowhere"})
    assert others["CIRANDA_JOB"] == told["CIRANDA_JOB"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"CIRANDA_SECRET_FILE": ""}, "openssl rand -hex 32"),
        ({"PADDLE_TRAINERS_NUM": "2"}, "do not fit the 3 endpoints"),
        ({"PADDLE_TRAINER_ID": "3"}, "do not fit the 3 endpoints"),
        ({"PADDLE_TRAINER_ID": "one"}, "PADDLE_TRAINER_ID=one is not a number"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1,b,c:2"}, "'b' is not HOST:PORT"),
        ({"PADDLE_TRAINER_ID": "0"}, "CIRANDA_SECRET_FILE=/nowhere: No such file"),
    ],
)
def test_paddles_endpoints_that_cannot_be(changed: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        by_endpoints({**PADDLE, "CIRANDA_SECRET_FILE": "/nowhere", **changed})


def test_no_rank_inherits_what_another_launcher_calls_its_processes() -> None:
    names = [row["name"] for row in _core.launcher_variables() if not row["describes_hosts"]]
    assert {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"} <= set(names)
    assert not forwarded({name.encode(): b"2" for name in names}, remote=False)
    for name in names:
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in JOB_IDENTITY), name


def test_local_ranks_of_hosts_that_are_not_alike() -> None:
    claims = [Claim("a"), Claim("b"), Claim("a"), Claim("c"), Claim("a"), Claim("b")]
    assert local_ranks(claims) == [
        LocalRanks(0, 3, 0, 3),
        LocalRanks(0, 2, 1, 3),
        LocalRanks(1, 3, 0, 2),
        LocalRanks(0, 1, 2, 3),
        LocalRanks(2, 3, 0, 1),
        LocalRanks(1, 2, 1, 2),
    ]


def test_what_launchers_say_of_local_ranks_counts() -> None:
    assert [each.local_rank for each in local_ranks([Claim("a", 1), Claim("a", 0), Claim("a")])] == [2, 0, 1]


@given(st.lists(st.builds(Claim, st.sampled_from("abcd"), st.none() | st.integers(0, 3)), min_size=1, max_size=12))
def test_local_ranks_number_every_host_and_every_row_of_hosts_from_0(claims: list[Claim]) -> None:
    numbered = local_ranks(claims)
    for host in {claim.host for claim in claims}:
        here = [each for each, claim in zip(numbered, claims, strict=True) if claim.host == host]
        assert sorted(each.local_rank for each in here) == list(range(len(here)))
        assert {each.local_size for each in here} == {len(here)}
    for local_rank in {each.local_rank for each in numbered}:
        row = [each for each in numbered if each.local_rank == local_rank]
        assert sorted(each.cross_rank for each in row) == list(range(len(row)))
        assert {each.cross_size for each in row} == {len(row)}
