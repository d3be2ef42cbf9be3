"""Programs that are written for torch's launchers find out who they are, and where to meet, under ours too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import netns
import pytest
from launch_support import Running, close_all, python_rank, run, start

pytestmark = pytest.mark.multiprocess

OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
            "ROLE_WORLD_SIZE", "ROLE_NAME")  # fmt: skip

# Words of jobs around the launcher. A library that believes one of them trains as somebody else.
SURROUNDING = {
    **dict.fromkeys(OF_RANKS, "7"),
    **dict.fromkeys(("CIRANDA_STORE", "CIRANDA_SECRET_FILE", "HOROVOD_RANK", "CIRANDA_SIZE"), "7"),
    **dict.fromkeys(("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "NODE_RANK"), "True"),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"), "8"),
    **dict.fromkeys(("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"), "9"),
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "1",
    "JOB_COMPLETION_INDEX": "3",
    "SLURM_JOB_ID": "1234",
}

PRINT = "import os\nprint(*(os.environ.get(n) for n in {names!r}))"


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


def test_ranks_are_told_in_torchs_words_and_in_those_of_no_surrounding_job() -> None:
    code = (
        f"{PRINT.format(names=OF_RANKS)}\n"
        f"print('kept', *(n for n, v in {sorted(SURROUNDING.items())!r} if os.environ.get(n) == v))\n"
        "print(*(os.environ[n] for n in ('MASTER_ADDR', 'CIRANDA_SIZE', 'TORCHELASTIC_USE_AGENT_STORE')))\n"
        "print(os.environ['TORCHELASTIC_RUN_ID'] == os.environ['CIRANDA_JOB'])\n"
    )
    exit_code, out, err = run(["run", "-np", "2", *python_rank(code)], env=SURROUNDING)
    assert (exit_code, err) == (0, b"")
    expected = {
        line
        for rank in (0, 1)
        for line in (
            f"[{rank}]<stdout>:{rank} 2 {rank} 2 0 1 {rank} 2 default",
            f"[{rank}]<stdout>:kept SLURM_JOB_ID",  # which allocation this is
            f"[{rank}]<stdout>:127.0.0.1 2 False",
            f"[{rank}]<stdout>:True",
        )
    }
    assert set(out.decode().splitlines()) == expected


def test_the_user_may_say_where_to_meet_and_a_range_is_kept_to() -> None:
    code = PRINT.format(names=("MASTER_ADDR", "MASTER_PORT"))
    arguments = ["run", "-np", "1", "--no-prefix"]
    own = ["--env", "MASTER_ADDR=10.1.2.3", "--env", "MASTER_PORT=29511"]
    assert run([*arguments, *own, *python_rank(code)]) == (0, b"10.1.2.3 29511\n", b"")
    assert run([*arguments, "--port-range", "23121-23123", *python_rank(code)]) == (0, b"127.0.0.1 23123\n", b"")


# --- a store of torch's, made for real ---

GROUPS = """
import os, sys, torch, torch.distributed as dist
import ciranda, ciranda.torch.distributed

def total():
    value = torch.ones(2) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    return int(value[0])

ranks = []
for backend, joins in (("gloo", "after"), ("ciranda", "before"), ("gloo", "before"), ("ciranda", "after")):
    if joins == "before":
        ciranda.init()
    dist.init_process_group(backend)
    ciranda.init()
    ranks.append((dist.get_rank(), dist.get_world_size()) == (ciranda.rank(), ciranda.size()))
    ranks.append(total() == 6)
    ranks.append(int(ciranda.torch.allreduce(torch.ones(1), op=ciranda.torch.Sum, name=backend + joins)) == 3)
    dist.barrier()
    dist.destroy_process_group()
    ciranda.barrier()  # the next store has the port of rank 0's last one: nobody must join that which is about to close
    ciranda.shutdown()
print(os.environ["MASTER_PORT"], ranks == [True] * 12)
"""


# Six processes import torch at once, on a machine that may have more to do.
BUSY = ("--start-timeout", "120")


def launched(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_process_groups_of_both_backends_in_two_jobs_at_once(tmp_path: Path) -> None:
    script = tmp_path / "groups.py"
    script.write_text(GROUPS)
    # Both jobs may use the same ports, and what listens in one must not take the port that the other keeps.
    jobs = [launched("-np", "3", *BUSY, "--port-range", "23130-23149", sys.executable, str(script)) for _ in range(2)]
    ports = []
    try:
        for job in jobs:
            out, err = job.communicate(timeout=200)
            assert job.returncode == 0, err
            lines = set(out.splitlines())
            assert len(lines) == 1
            port, fine = lines.pop().split()
            assert fine == "True"
            ports.append(int(port))
    finally:
        for job in jobs:
            job.terminate()  # the other, if one has failed: it would keep its ports
    assert sorted(ports) == [23148, 23149]


ROUNDS = """
import os, torch, torch.distributed as dist
import ciranda.torch.distributed

for step in range(30):
    dist.init_process_group("gloo" if step % 10 == 9 else "ciranda")
    rank, size = dist.get_rank(), dist.get_world_size()
    value = torch.full((1,), float(step + rank))
    dist.all_reduce(value)
    assert value == 2 * step + 1, (step, value)
    if rank == step % 2:
        dist.send(value, 1 - rank)
    else:
        dist.recv(value, 1 - rank if step % 10 == 9 else None)
    dist.destroy_process_group()
print(os.environ["CIRANDA_TORCH_STORE"].rpartition(":")[0], os.environ["TORCHELASTIC_USE_AGENT_STORE"], step)
"""


@pytest.mark.parametrize("hosts", ["localhost:2", "localhost:1,127.0.0.1:1"], ids=["one agent", "two agents"])
def test_process_groups_follow_each_other(tmp_path: Path, hosts: str) -> None:
    """Without a barrier: the store is the launcher's, and none that closes with the last group of rank 0."""
    script = tmp_path / "rounds.py"
    script.write_text(ROUNDS)
    job = launched("-H", hosts, *BUSY, sys.executable, str(script))
    try:
        out, err = job.communicate(timeout=200)
    finally:
        job.terminate()
    assert job.returncode == 0, err
    assert out.splitlines() == ["127.0.0.1 False 29"] * 2


NO_STORE = PRINT.format(names=("CIRANDA_TORCH_STORE",))


def test_a_store_is_hosted_where_nobody_chooses_another_and_there_is_a_port() -> None:
    arguments = ["run", "-np", "1", "--no-prefix"]
    for options in (["--env", "MASTER_PORT=29511"], ["--port-range", "23121-23123"]):
        assert run([*arguments, *options, *python_rank(NO_STORE)]) == (0, b"None\n", b"")


# --- between hosts ---


MEET = """
import os
from datetime import timedelta
from torch.distributed import TCPStore
host, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(os.environ["RANK"])
store = TCPStore(host, port, 3, rank == 0, timedelta(seconds=60), multi_tenant=True)
store.set(str(rank), "here")
store.wait([str(other) for other in range(3)])
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
print(host, *(os.environ[name] for name in names))
store.add("left", 1)
while rank == 0 and store.add("left", 0) < 3: pass
"""


@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.parametrize(
    ("launcher", "options"), [(0, []), (2, []), (2, ["--network-interface", "eth0"])], ids=["first", "third", "eth0"]
)
def test_rank_0_is_reached_on_its_host_from_every_other(hosts: netns.Hosts, launcher: int, options: list[str]) -> None:
    words = ["run", "--ssh-config", str(hosts.ssh_config), "--no-prefix", "-H", "hostA:2,hostB:1", *options]
    running: Running = start([*words, sys.executable, "-c", MEET], through=hosts[launcher].enter, env=dict(os.environ))
    exit_code, out, err = running.wait()
    assert exit_code == 0, err
    where = hosts[0].address
    assert sorted(out.decode().splitlines()) == [f"{where} 0 0 2 0 2", f"{where} 1 1 2 0 2", f"{where} 2 0 1 1 2"]
