"""Who knows how the ranks meet, and which slot each has: decisions without any process."""

from __future__ import annotations

import fnmatch
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda import _core
from ciranda.engines import slurm
from ciranda.engines.batch_script import Batch, script
from ciranda.engines.endpoints import by_endpoints
from ciranda.engines.handover import folder_name, safe_folder, sweep
from ciranda.engines.identity import ENGINES, Way, doubt, identity, slot_of, way_to_meet
from ciranda.engines.local_ranks import Claim, LocalRanks, local_ranks
from ciranda.engines.rendezvous import require_one_version
from ciranda.errors import InvalidArgumentError
from ciranda.launch.environment import JOB_IDENTITY, forwarded
from ciranda.launch.errors import HostsError, LaunchError
from ciranda.launch.hosts import Host
from ciranda.launch.ssh import SshOptions
from recorded import BATCH, MPIEXEC, MPIRUN, MPIRUN_5, SALLOC, SRUN, SRUN_PMI2, SRUN_PMIX

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
        (SRUN, 1, Way.FILE),
        (SRUN, 3, Way.GROUP),
        (MPIRUN, 1, Way.FILE),
        (MPIRUN_5, 1, Way.FILE),
        ({**MPIRUN, "OMPI_COMM_WORLD_SIZE": "1"}, 1, Way.ENGINE),
        (MPIEXEC, 1, Way.KEY_VALUES),
        (MPIEXEC, 4, Way.GROUP),
        ({**MPIEXEC, **TORCHRUN, "WORLD_SIZE": "4", "RANK": "1"}, 1, Way.TORCH),
        ({**MPIEXEC, "PMI_SIZE": "1"}, 1, Way.ENGINE),
        ({**MPIEXEC, "PMI_FD": ""}, 1, Way.ENGINE),  # which the engine refuses
        ({**MPIEXEC, "CIRANDA_ENGINE": "none"}, 1, Way.ENGINE),
        ({**SRUN, **MPIEXEC}, 1, Way.KEY_VALUES),  # mpiexec within an allocation starts its helpers by srun
        ({**MPIRUN, **TORCHRUN}, 1, Way.TORCH),
        ({**MPIRUN, "CIRANDA_ENGINE": "none"}, 1, Way.ENGINE),
        ({**SRUN, "PMI_SIZE": "3", "PMI_RANK": "1", "PMIX_RANK": "1"}, 1, Way.FILE),
        ({**SRUN, **TORCHRUN}, 1, Way.TORCH),  # torchrun within srun, once on each node
        ({**SRUN, "OMPI_COMM_WORLD_SIZE": "8"}, 1, Way.ENGINE),  # mpirun within srun, which the engine refuses
        ({**SRUN, "PMI_ID": "8"}, 1, Way.ENGINE),  # mpiexec -pmi-port, as well
        ({**SRUN, "PMI_SIZE": "3", "PMI_RANK": "1", "PMI_FD": "9"}, 1, Way.FILE),  # another's
        (SRUN_PMI2, 1, Way.STEP),
        ({**SRUN_PMI2, "CIRANDA_HANDOVER_FOLDER": "/shared"}, 1, Way.FILE),
        ({**SRUN_PMI2, **MPIEXEC}, 1, Way.KEY_VALUES),
        ({**SRUN_PMI2, **TORCHRUN, "PMI_SIZE": "3"}, 1, Way.TORCH),
        (SRUN_PMIX, 1, Way.STEP),
        ({**SRUN_PMIX, "CIRANDA_HANDOVER_FOLDER": "/shared"}, 1, Way.FILE),
        ({**SRUN_PMIX, **MPIRUN_5}, 1, Way.FILE),  # mpirun within srun, which has its own namespace
        ({**SRUN, "CIRANDA_SIZE": "2"}, 1, Way.ENGINE),
        ({**SRUN, "CIRANDA_ENGINE": "none"}, 1, Way.ENGINE),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, 1, Way.ENGINE),
        (BATCH, 1, Way.ENGINE),
        (SALLOC, 1, Way.ENGINE),
    ],
)
def test_who_is_asked(environ: dict[str, str], size_of_group: int, way: Way) -> None:
    assert way_to_meet(environ, size_of_group) is way


def test_who_has_met_meets_again() -> None:
    assert way_to_meet({"WORLD_SIZE": "2"}, has_met=True) is Way.AGAIN
    assert way_to_meet(TORCHRUN, has_met=True) is Way.AGAIN
    assert way_to_meet(TORCHRUN, 2, has_met=True) is Way.GROUP  # which may be another by now
    assert way_to_meet({"CIRANDA_ENGINE": "none"}, has_met=True) is Way.ENGINE


def test_who_is_the_process_of_a_step() -> None:
    found = identity(SRUN)
    assert found is not None
    assert (found.rank, found.size, found.local_rank, found.node, found.n_nodes) == (1, 3, 1, 0, 2)
    assert found.words == (
        "srun: rank 1 of 3 (SLURM_STEP_NUM_TASKS=3, SLURM_PROCID=1, SLURM_JOB_ID=17, SLURM_STEP_ID=0)"
    )
    assert identity(BATCH) is None
    assert identity(SALLOC) is None


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"PMI_SIZE": "1"}, "SLURM_STEP_NUM_TASKS=3, of srun, and PMI_SIZE=1 contradict each other"),
        ({"WORLD_SIZE": "6"}, "SLURM_STEP_NUM_TASKS=3, of srun, and WORLD_SIZE=6 contradict each other"),
        ({**TORCHRUN, "WORLD_SIZE": "1"}, "and WORLD_SIZE=1 contradict each other"),  # torchrun --standalone on each
        ({"PMIX_RANK": "0"}, "SLURM_PROCID=1, of srun, and PMIX_RANK=0 contradict each other"),
        ({"SLURM_PROCID": "one"}, "SLURM_PROCID=one is not a number"),
    ],
)
def test_two_that_contradict_each_other_are_both_named(other: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        way_to_meet({**SRUN, **other})


def test_who_may_have_forgotten_srun_is_told() -> None:
    assert doubt(SALLOC).startswith("SLURM_NTASKS=4: Slurm job 3 may run 4 tasks, but this process is in none of its")
    nodes = {"SLURM_JOB_ID": "3", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "1(x2)"}  # as by salloc -N2
    assert doubt(nodes).startswith("SLURM_JOB_NUM_NODES=2: Slurm job 3 may run 2 tasks")
    for environ in ({}, SRUN, BATCH, {**SALLOC, "CIRANDA_ENGINE": "none"}, {**SALLOC, "SLURM_NTASKS": "1"}):
        assert doubt(environ) == ""


def test_who_is_the_process_of_an_mpirun_also_within_srun() -> None:
    for environ in (MPIRUN, MPIRUN_5, {**SRUN, **MPIRUN}):
        found = identity(environ)
        assert found is not None
        assert (found.engine.name, found.rank, found.size, found.local_rank) == ("mpirun", 1, 4, 1)
    with pytest.raises(InvalidArgumentError, match="OMPI_COMM_WORLD_SIZE=4, of mpirun, and WORLD_SIZE=2 contradict"):
        way_to_meet({**MPIRUN, "WORLD_SIZE": "2"})


def test_who_is_the_process_of_an_mpiexec_also_within_srun() -> None:
    for environ in (MPIEXEC, {**SRUN, **MPIEXEC}):
        found = identity(environ)
        assert found is not None
        assert (found.engine.name, found.rank, found.size, found.local_rank) == ("mpiexec", 1, 4, 1)
    with pytest.raises(InvalidArgumentError, match="PMI_SIZE=4, of mpiexec, and WORLD_SIZE=2 contradict"):
        way_to_meet({**MPIEXEC, "WORLD_SIZE": "2"})


def test_every_mpirun_is_a_job_of_its_own() -> None:
    """Two at a time on one machine, and one that starts processes twice."""
    jobs = [MPIRUN, {**MPIRUN, "OMPI_MCA_ess_base_jobid": "616038402"}]
    jobs += [{**MPIRUN, "OMPI_MCA_orte_hnp_uri": "616038400.0;tcp://192.0.2.2:59938"}]
    jobs += [MPIRUN_5, {**MPIRUN_5, "PMIX_NAMESPACE": "prterun-node0-4712@1"}]
    found = [identity(environ) for environ in jobs]
    assert len({folder_name(each) for each in found if each is not None}) == len(jobs)


def test_tasks_of_a_step_meet_at_one_folder_also_without_their_connections() -> None:
    """Each task has a connection of another number, and not every program that it starts inherits it."""
    found = [identity(environ) for environ in (SRUN_PMI2, {**SRUN_PMI2, "PMI_FD": "12"}, SRUN)]
    assert len({folder_name(each) for each in found if each is not None}) == 1


def test_a_requeued_job_is_another() -> None:
    jobs = [SRUN, {**SRUN, "SLURM_RESTART_COUNT": "1"}, {**SRUN, "SLURM_JOB_START_TIME": "5"}]
    jobs += [{**SRUN, "SLURM_JOB_ID": "18"}, {**SRUN, "SLURM_STEP_ID": "1"}, {**SRUN, "SLURM_CLUSTER_NAME": "other"}]
    found = [identity(environ) for environ in jobs]
    assert len({folder_name(each) for each in found if each is not None}) == len(jobs)
    other_rank = identity({**SRUN, "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"})
    assert other_rank is not None
    assert found[0] is not None
    assert folder_name(other_rank) == folder_name(found[0])


def test_the_secret_is_left_only_where_nobody_else_comes(tmp_path: Path) -> None:
    made = safe_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert made == tmp_path / "ciranda" / "handover"
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o750)
    with pytest.raises(InvalidArgumentError, match=r"which others may enter \(owner \d+, mode 750\): chmod 700"):
        safe_folder({"XDG_CACHE_HOME": str(tmp_path)})
    with pytest.raises(InvalidArgumentError, match="CIRANDA_HANDOVER_FOLDER"):
        safe_folder({"CIRANDA_HANDOVER_FOLDER": "/proc/none/here"})


def test_what_killed_jobs_have_left_is_removed_after_a_week(tmp_path: Path) -> None:
    """And nothing else: the folder may be the user's home."""
    found = [identity({**SRUN, "SLURM_JOB_ID": job}) for job in ("1", "2")]
    old, new = (folder_name(each) for each in found if each is not None)
    others = ["thesis", "ciranda-data", "ciranda-of-mine-0123456789abcdef"]
    for name in (old, new, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("chapter" if name in others else "claim-0")).touch()
    (tmp_path / old / ".answer-0123456789abcdef").touch()
    for name in (old, *others):
        os.utime(tmp_path / name, (0, 0))
    sweep(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([new, *others])
    assert all((tmp_path / name / "chapter").exists() for name in others)


def test_the_guide_lists_every_variable_of_the_engines_table() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "launching.md").read_text(encoding="utf-8")
    for row in _core.launcher_variables():
        assert f"`{row['name']}`" in guide, row["name"]


def test_whom_the_table_can_join_the_engine_refuses_to_be_alone() -> None:
    """The two tables agree: what is not joined by Python, or is by C, is no silent world of one."""
    rows = {row["name"]: row for row in _core.launcher_variables()}
    found = (TORCHRUN, PADDLE, MPIRUN, MPIRUN_5, MPIEXEC, SRUN_PMI2, SRUN_PMIX, SRUN)
    for engine, environ in zip(ENGINES, found, strict=True):
        assert identity(environ) is not None
        assert not rows[engine.size]["is_index"]
        assert f"{engine.size}={environ[engine.size]} says" in _core.why_not_alone(environ)
        for name in engine.within:
            assert name in rows
            assert f"{name}=8 says" in _core.why_not_alone({**environ, name: "8"})
    for environ in (BATCH, SALLOC, {}):
        assert _core.why_not_alone(environ) == ""
        assert _core.doubt_of_being_alone(environ) == ""


def test_slots_differ_by_rank_and_job() -> None:
    slots = [TORCHRUN, {**TORCHRUN, "RANK": "1"}, {**TORCHRUN, "MASTER_PORT": "29501"}]
    slots += [PADDLE, {**PADDLE, "PADDLE_TRAINER_ID": "1"}, SRUN, {**SRUN, "SLURM_PROCID": "0"}]
    assert len({slot_of(environ) for environ in slots}) == 7
    assert slot_of({**TORCHRUN, "PATH": "/bin"}) == slot_of(TORCHRUN)


def test_slots_of_two_mpiexecs_differ_by_their_connections() -> None:
    """Their variables are the same, as of one that a rank of another starts."""
    with socket.socket() as one, socket.socket() as other:
        slots = {slot_of({**MPIEXEC, "PMI_FD": str(each.fileno())}) for each in (one, other)}
        assert len(slots) == 2
        assert slot_of({**MPIEXEC, "PMI_FD": str(one.fileno())}) in slots


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


# --- a batch script and an allocation of Slurm ---


def test_versions_that_are_not_one_are_refused_with_who_has_which() -> None:
    require_one_version({f"rank {rank}": "1.0" for rank in range(30)})
    with pytest.raises(InvalidArgumentError) as refused:
        require_one_version({f"rank {rank}": "1.0" if rank else "1.1" for rank in range(30)})
    listed = ", ".join(f"rank {rank}" for rank in range(1, 11))
    assert f"same version of Ciranda: 1.1 on rank 0; 1.0 on {listed} and others. Install one" in str(refused.value)


def test_a_batch_script_has_what_is_asked_for() -> None:
    batch = Batch(["ciranda", "run"], ["python", "train.py", "a b"], {"nodes": 2, "time": None}, ["--qos=high"])
    assert script(batch).splitlines() == [
        "#!/bin/bash",
        "#SBATCH --nodes=2",
        "#SBATCH --qos=high",
        "",
        "# A rank for each task, on all nodes. By exec, Slurm's signals to this script reach the ranks.",
        "exec ciranda run python train.py 'a b'",
    ]


@pytest.mark.parametrize(
    ("options", "more", "text"),
    [({"job-name": "a\nrm -r ~"}, [], "is one line"), ({}, ["--qos=a\r"], "is one line"), ({}, ["high"], "--qos=high")],
)
def test_what_is_no_option_of_sbatch_is_refused(options: dict[str, str], more: list[str], text: str) -> None:
    with pytest.raises(LaunchError, match=text):
        script(Batch(["ciranda", "run"], ["true"], {**options}, more))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node0", ["node0"]),
        ("node[0-2]", ["node0", "node1", "node2"]),
        ("n[1-2,07],m", ["n1", "n2", "n07", "m"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("a-1.b,c[5]-x", ["a-1.b", "c5-x"]),
    ],
)
def test_lists_of_nodes_are_expanded(text: str, nodes: list[str]) -> None:
    assert list(slurm.nodes_of(text)) == nodes


@pytest.mark.parametrize("text", ["n[1", "n[a-b]", "n[]", ",", "n]", "a,,b"])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(HostsError, match="SLURM_JOB_NODELIST"):
        slurm.nodes_of(text)


def test_numbers_of_tasks_are_expanded() -> None:
    assert slurm.counts_of("2(x3),1") == (2, 2, 2, 1)
    assert slurm.counts_of("4") == (4,)
    for text in ("", "2(x", "x", "2,,1"):
        assert slurm.counts_of(text) == ()


def test_an_allocation_gives_nodes_and_sizes() -> None:
    found = slurm.allocation(SALLOC)
    assert found is not None
    assert found.hosts() == found.hosts(np=4) == [Host("node0", 3), Host("node1", 1)]
    assert found.hosts(per_host=2) == [Host("node0", 2), Host("node1", 2)]
    with pytest.raises(HostsError, match=r"-np 5 is more than the 4 tasks of Slurm job 3 \(node0:3, node1:1\)"):
        found.hosts(np=5)


def test_one_node_has_as_many_slots_as_are_asked_for() -> None:
    """Its cores may be those of one task, as by --cpus-per-task."""
    found = slurm.allocation(BATCH)
    assert found is not None
    assert found.hosts(np=4) == [Host("node0", 4)]
    assert found.hosts() == [Host("node0", 1)]


def test_who_is_in_no_allocation_or_in_a_step_of_several_takes_this_machine() -> None:
    assert slurm.allocation({}) is None
    assert slurm.allocation(SRUN) is None
    assert slurm.allocation({**SALLOC, "CIRANDA_JOB": "1f", "CIRANDA_SIZE": "4"}) is None  # a rank of ciranda run
    assert slurm.number_of_tasks(SRUN) == 3
    assert slurm.number_of_tasks(BATCH) == slurm.number_of_tasks(SALLOC) == 1


def test_a_step_of_one_task_does_not_know_the_sizes_of_the_allocation() -> None:
    found = slurm.allocation(
        {**SALLOC, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1"}
    )
    assert found is not None
    with pytest.raises(HostsError, match="--nproc-per-node"):
        found.hosts(np=2)
    assert found.hosts(per_host=1) == [Host("node0", 1), Host("node1", 1)]


def test_nodes_of_the_allocation_are_reached_by_srun_and_others_by_ssh() -> None:
    assert slurm.srun_for(["node0", "node1"], SshOptions(), SALLOC) is not None
    assert slurm.srun_for(["node0", "other"], SshOptions(), SALLOC) is None
    assert slurm.srun_for(["node0"], SshOptions(port=22), SALLOC) is None
    assert slurm.srun_for(["node0"], SshOptions(), {}) is None
    assert slurm.srun_for(["node0"], SshOptions(), SRUN) is None
