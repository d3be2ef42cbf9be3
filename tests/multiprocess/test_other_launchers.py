"""Under launchers that are not ours a rank joins the others, or says that it cannot: it never trains alone unasked."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ciranda.launch.reserved_port import ReservedPort

pytestmark = pytest.mark.multiprocess

WORDS = ("CIRANDA_", "HOROVOD_")


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(WORDS)}
    return {**clean, "CIRANDA_START_TIMEOUT": "60", "OMP_NUM_THREADS": "1", **more}


def start(code: str, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    ended = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        sys.stderr.write(err)
        ended.append((process.returncode, out.strip(), err))
    return ended


@pytest.fixture
def port() -> Iterator[str]:
    """A port for torch's store, kept for the test."""
    reserved = ReservedPort(range(1))
    yield str(reserved.port)
    reserved.close()


# --- torchrun ---

JOIN = """
import sys, numpy, torch, torch.distributed as dist
import ciranda, ciranda.torch.distributed

def who():
    size = ciranda.size()
    total = ciranda.allreduce(numpy.arange(4.0) * (ciranda.rank() + 1), op=ciranda.Sum, name="x")
    assert (total == numpy.arange(4.0) * (size * (size + 1) / 2)).all()
    return ciranda.rank(), size, ciranda.local_rank(), ciranda.local_size(), ciranda.cross_rank(), ciranda.cross_size()

ciranda.init()
first = who()
ciranda.shutdown()
ciranda.init()  # again, through the same store
assert who() == first
for backend in ("gloo", "ciranda"):
    dist.init_process_group(backend)
    assert (dist.get_rank(), dist.get_world_size()) == first[:2]
    ones = torch.ones(2)
    dist.all_reduce(ones)
    assert ones.tolist() == [first[1]] * 2
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.write(f"{first}\\n")
"""


def test_init_joins_under_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "join.py"
    script.write_text(JOIN)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(script)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [str((rank, 3, rank, 3, 0, 1)) for rank in range(3)]


def test_init_joins_two_agents_and_by_variables_alone(port: str) -> None:
    """Without torchrun's store rank 0 hosts one; GROUP_RANK is how ranks of one torchrun know each other."""
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    groups = [{"GROUP_RANK": g, "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": n} for g, r, n in ("002", "012", "101")]
    ended = finish([start(JOIN, RANK=str(rank), **group, **common) for rank, group in enumerate(groups)])
    assert [code for code, _, _ in ended] == [0, 0, 0]
    assert [out for _, out, _ in ended] == ["(0, 3, 0, 2, 0, 2)", "(1, 3, 1, 2, 0, 1)", "(2, 3, 0, 1, 1, 2)"]


STARTS_ANOTHER = """
import os, subprocess, sys, ciranda
ciranda.init()
if len(sys.argv) == 1:
    ciranda.barrier()
    if ciranda.rank() == 0:
        with open(os.environ["SCRIPT"]) as file:
            done = subprocess.run([sys.executable, "-c", file.read(), "child"], capture_output=True, text=True)
        assert "this program was started by rank 0 (process" in done.stderr, done.stderr
    ciranda.barrier()
"""


def test_a_program_that_a_rank_of_torchrun_starts_does_not_take_its_place(port: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STARTS_ANOTHER)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port, "SCRIPT": str(script)}
    ended = finish([start(STARTS_ANOTHER, RANK=str(rank), **common) for rank in range(2)])
    assert [code for code, _, _ in ended] == [0, 0]


# --- Paddle's launcher, without Paddle ---

JOIN_BY_ENDPOINTS = """
import numpy, ciranda
for _ in range(2):  # again, at the same endpoint
    ciranda.init()
    total = ciranda.allreduce(numpy.arange(4.0) * (ciranda.rank() + 1), op=ciranda.Sum, name="x")
    assert (total == numpy.arange(4.0) * 6).all()
    said = ciranda.rank(), ciranda.size(), ciranda.local_rank(), ciranda.local_size()
    ciranda.shutdown()
print(said)
"""


def test_init_joins_by_paddles_endpoints(port: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("5a" * 32)
    endpoints = ",".join(f"127.0.0.1:{int(port) - rank}" for rank in range(3))
    common = {"PADDLE_TRAINERS_NUM": "3", "PADDLE_TRAINER_ENDPOINTS": endpoints}
    ranks = [{**common, "PADDLE_TRAINER_ID": str(rank)} for rank in range(3)]
    ended = finish([start(JOIN_BY_ENDPOINTS, CIRANDA_SECRET_FILE=str(secret), **rank) for rank in ranks])
    assert [(code, out) for code, out, _ in ended] == [(0, str((rank, 3, rank, 3))) for rank in range(3)]
    ((code, _, err),) = finish([start(JOIN_BY_ENDPOINTS, **ranks[1])])
    assert code != 0
    assert "there is no secret by which they know each other" in err


# --- launchers that say less ---

# As Lightning's own launcher does: the first process has nothing in its environment and starts the others, which get a
# LOCAL_RANK; who is who is an argument.
AS_LIGHTNING = """
import os, sys, torch, torch.distributed as dist
import ciranda, ciranda.torch.distributed
rank = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("LOCAL_RANK", 0))
dist.init_process_group({backend!r}, rank=rank, world_size=2)
ciranda.init()
ones = ciranda.torch.allreduce(torch.ones(2), op=ciranda.torch.Sum, name="x")
print(ciranda.rank(), ciranda.size(), ciranda.local_rank(), ciranda.local_size(), ones.tolist())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["ciranda", "gloo"])
def test_what_the_environment_does_not_say_of_hosts_is_found_out(backend: str, port: str) -> None:
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code = AS_LIGHTNING.format(backend=backend)
    ended = finish([start(code, **common), start(code, LOCAL_RANK="1", NODE_RANK="0", **common)])
    assert [(code, out) for code, out, _ in ended] == [(0, "0 2 0 2 [2.0, 2.0]"), (0, "1 2 1 2 [2.0, 2.0]")]


# --- launchers that say nothing of how to meet ---

ALONE = "import ciranda; ciranda.init(); print(ciranda.size())"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "PMI_SIZE": "4"}, "SLURM_STEP_NUM_TASKS=4"),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0"}, "OMPI_COMM_WORLD_SIZE=4"),
        ({"WORLD_SIZE": "4", "LOCAL_RANK": "1"}, "WORLD_SIZE=4"),
    ],
)
def test_nobody_is_alone_by_accident(variables: dict[str, str], named: str) -> None:
    by_accident = start(ALONE, **variables)
    meant = start(ALONE, CIRANDA_ENGINE="none", **variables)
    explicit = start(ALONE, CIRANDA_SIZE="1", **variables)
    (code, _, err), *others = finish([by_accident, meant, explicit])
    last = err.strip().splitlines()[-1]
    assert code == 1
    assert f"InvalidArgumentError: {named} says that this is one of several processes" in last
    assert "ciranda run -np 4 COMMAND" in last
    assert [(code, out) for code, out, _ in others] == [(0, "1"), (0, "1")]


WORKERS = '{"task": {"type": "worker", "index": 0}, "cluster": {"worker": ["a:1", "b:1"]}}'
ALONE_IN_SILENCE = (
    {"TF_CONFIG": WORKERS},
    {"PET_NNODES": "2", "JOB_COMPLETION_INDEX": "0"},
    {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1"},
    {"VC_WORKER_NUM": "2", "VC_TASK_INDEX": "0"},
    {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "0"},
    {"PALS_RANKID": "1"},
    {"ALPS_APP_PE": "1"},
    {"LSF_PM_TASKID": "2"},
    {"DMLC_NUM_WORKER": "2", "DMLC_ROLE": "worker"},
)


def test_nobody_is_alone_on_one_of_several_hosts() -> None:
    ended = finish([start(ALONE, **variables) for variables in ALONE_IN_SILENCE])
    for variables, (code, out, err) in zip(ALONE_IN_SILENCE, ended, strict=True):
        assert (code, out) == (1, ""), variables
        last = err.strip().splitlines()[-1]
        name, value = next(iter(variables.items()))
        assert f"InvalidArgumentError: {name}={value[:60]}" in last
        assert "says that this is one of several processes" in last


def test_one_process_on_one_host_is_alone() -> None:
    """Also in `ciranda run -np 1`, which passes on what describes hosts."""
    one = {
        "TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}',
        "PET_NNODES": "1",
        "SM_HOSTS": '["algo-1"]',
        "VC_WORKER_NUM": "1",
        "SKYPILOT_NUM_NODES": "1",
        "DMLC_NUM_WORKER": "1",
    }
    several = {name: value for variables in ALONE_IN_SILENCE for name, value in variables.items()}
    within = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "1", "--no-prefix", sys.executable, "-c", ALONE]
    job = subprocess.run(within, env=environment(**several), capture_output=True, text=True, timeout=120, check=False)
    ((code, out, err),) = finish([start(ALONE, **one)])
    assert (code, out, err) == (0, "1", "")
    assert (job.returncode, job.stdout) == (0, "1\n"), job.stderr


def test_an_allocation_is_no_launcher() -> None:
    """In an sbatch script outside srun Slurm says how many tasks there may be, and one process runs."""
    [(code, out, _)] = finish([start(ALONE, SLURM_NTASKS="8", SLURM_JOB_NUM_NODES="4", SLURM_TASKS_PER_NODE="2(x4)")])
    assert (code, out) == (0, "1")


def test_a_rank_that_does_not_come_is_named(port: str) -> None:
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "CIRANDA_START_TIMEOUT": "8"}
    # Without wait_for_workers, as under an agent, or torch's own store would wait for all.
    code = """
    import torch.distributed as dist, os
    from datetime import timedelta
    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 3, rank == 0, timedelta(seconds=60),
                          wait_for_workers=False)
    from ciranda import errors
    from ciranda.torch.distributed.joining import meet
    try:
        meet(store, rank, 3, timedelta(seconds=8))
    except errors.TimeoutError as error:
        print(error)
    store.add("left", 1)
    while rank == 0 and store.add("left", 0) < 2: pass
    """
    ended = finish([start(code, RANK=rank, **common) for rank in ("0", "1")])
    said = "init() of rank 0 of 3: rank 2 did not come to torch's store within 8 s"
    assert [(code, out.partition(";")[0]) for code, out, _ in ended] == [(0, said), (0, said)]


# --- mistakes that would train wrong ---


def test_a_world_of_one_is_no_rank_of_a_larger_process_group(port: str) -> None:
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code = """
    import sys, torch.distributed as dist, ciranda.errors, ciranda.torch.distributed
    ciranda.init()  # before the launcher has said anything
    dist.init_process_group("ciranda", rank=int(sys.argv[-1]) if sys.argv[1:] else 0, world_size=1)
    dist.destroy_process_group()
    store = dist.HashStore()
    try:
        dist.init_process_group("ciranda", rank=1, world_size=2, store=store)
    except ciranda.errors.InvalidArgumentError as error:
        print(error)
    """
    [(code_, out, _)] = finish([start(code, **common)])
    assert code_ == 0
    assert out.startswith(
        "init_process_group(): this process is rank 1 of 2, but it is in a world already, as rank 0 of 1"
    )


def test_some_ranks_alone_do_not_join_the_world_of_all(port: str) -> None:
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code = """
    import torch.distributed as dist, ciranda.errors, ciranda.torch.distributed
    dist.init_process_group("gloo")
    refused = "member of nothing"
    try:
        dist.new_group([0, 2], backend="ciranda")
    except ciranda.errors.InvalidArgumentError as error:
        refused = str(error)
    print(refused)
    dist.barrier()
    """
    ended = finish([start(code, RANK=str(rank), **common) for rank in range(3)])
    assert [code for code, _, _ in ended] == [0, 0, 0]
    said = [out.partition(":")[0] for _, out, _ in ended]
    assert said == ["new_group() of 2 of 3 ranks", "member of nothing", "new_group() of 2 of 3 ranks"]


# --- our launchers within theirs ---


@pytest.mark.parametrize("module", ["ciranda.launch", "horovod"])
def test_a_function_may_run_on_ranks_of_its_own_within_a_foreign_job(module: str) -> None:
    pytest.importorskip(module)
    code = f"""
    from {module} import run

    def work():
        import os, ciranda
        ciranda.init()
        return ciranda.rank(), ciranda.size(), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_PORT"] != "1"

    assert run(work, np=2) == [(0, 2, 2, True), (1, 2, 2, True)]
    print("well")
    """
    around = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "MASTER_ADDR": "192.0.2.1",
        "MASTER_PORT": "1",
        "OMPI_COMM_WORLD_SIZE": "8",
    }
    [(code_, out, _)] = finish([start(code, **around)])
    assert (code_, out.splitlines()[-1]) == (0, "well")
