"""An MPI's mpirun starts the ranks: the real ones, where they are installed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mpis import HOW, MPIS, Mpi
from netns import Hosts
from strangers import strangers

from recorded import MPIEXEC, MPIRUN, MPIRUN_5, form

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

WHO = """
import os, sys, numpy
if "before" in sys.argv:
    from mpi4py import MPI
import ciranda
ciranda.init()
rank, size = ciranda.rank(), ciranda.size()

def add():
    total = ciranda.allreduce(numpy.arange(4.0) * (rank + 1), op=ciranda.Sum, name="x")
    assert (total == numpy.arange(4.0) * (size * (size + 1) / 2)).all()

add()
if "after" in sys.argv:
    from mpi4py import MPI
    add()
if "mpi4py" in sys.modules:
    assert (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1)) == (rank, size)
with open(f"{os.environ['OUT']}/{rank}.{os.getpid()}", "w") as file:
    print(rank, size, ciranda.local_rank(), ciranda.local_size(), os.uname().nodename, file=file)
ciranda.shutdown()
"""


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    found = MPIS[request.param]
    if found is None:
        pytest.skip(f"NOT TESTED, mpirun of {request.param}: it is not installed ({HOW[request.param]})")
    return found


@pytest.fixture
def env(mpi: Mpi, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "said").mkdir()
    (tmp_path / "who.py").write_text(WHO)
    places = {
        "OUT": str(tmp_path / "said"),
        "WHO": str(tmp_path / "who.py"),
        "PY": mpi.python,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    return {**mpi.env, **places, "CIRANDA_START_TIMEOUT": "60"}


def said(env: dict[str, str]) -> list[str]:
    """What the ranks have written, and what they have left where they met: nothing."""
    assert not [each for each in Path(env["XDG_CACHE_HOME"]).rglob("*") if each.name not in ("ciranda", "handover")]
    return sorted(file.read_text().strip() for file in Path(env["OUT"]).iterdir())


def run(mpi: Mpi, env: dict[str, str], np: int, *rank: str, **more: str) -> subprocess.CompletedProcess[str]:
    told = mpi.command(np, *rank)
    return subprocess.run(told, env={**env, **more}, capture_output=True, text=True, timeout=120, check=False)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


SAY = """
import json, os
if "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    print(json.dumps(dict(os.environ)))
"""


def test_it_sets_the_variables_of_the_table(mpi: Mpi, env: dict[str, str]) -> None:
    recorded = {"system": MPIRUN, "openmpi": MPIRUN_5}.get(mpi.name, MPIEXEC)
    done = run(mpi, env, 4, mpi.python, "-S", "-c", SAY)
    assert done.returncode == 0, done.stderr
    assert form(recorded, json.loads(done.stdout)) == form(recorded, recorded)


def test_its_processes_are_the_ranks_also_of_two_jobs_at_once(mpi: Mpi, env: dict[str, str]) -> None:
    jobs = [subprocess.Popen(mpi.command(np, mpi.python, env["WHO"]), env=env) for np in (3, 2)]
    assert [job.wait(120) for job in jobs] == [0, 0]
    numbers = [[int(word) for word in line.split()[:4]] for line in said(env)]
    for size in (2, 3):
        ranks, sizes, local_ranks, local_sizes = zip(*[each for each in numbers if each[1] == size], strict=True)
        assert ranks == tuple(range(size))
        assert sorted(local_ranks) == list(ranks)  # mpirun's: Open MPI 5 numbers them by where they are bound
        assert sizes == local_sizes == (size,) * size


def test_commands_of_one_job_meet_one_after_the_other(mpi: Mpi, env: dict[str, str]) -> None:
    """By files; mpiexec serves its key-value space only until a program has told it that it ends."""
    done = run(mpi, env, 2, "sh", "-c", '"$PY" "$WHO" && "$PY" "$WHO"')
    ranks = [line.partition(" ")[0] for line in said(env)]
    if mpi.is_open_mpi:
        assert (done.returncode, ranks) == (0, ["0", "0", "1", "1"]), done.stderr
    else:
        assert ranks == ["0", "1"]
        assert done.returncode != 0
        assert "a program before it in the same process slot has used it" in done.stderr


def test_a_rank_that_does_not_come_is_missed(mpi: Mpi, env: dict[str, str]) -> None:
    """mpiexec ends the other too, once the first has failed."""
    rank = "OMPI_COMM_WORLD_RANK" if mpi.is_open_mpi else "PMI_RANK"
    code = f"import os, time, ciranda; os.environ['{rank}'] == '1' and time.sleep(600); ciranda.init()"
    ended = run(mpi, env, 2, mpi.python, "-c", code, CIRANDA_START_TIMEOUT="2")
    assert ended.returncode != 0
    if mpi.is_open_mpi:
        assert "init() of rank 0 of 2: rank 1 of 2 did not come to" in ended.stderr
    else:
        assert "init() of rank 0 of 2: not all 2 processes that mpiexec has started" in ended.stderr


def test_a_process_of_one_is_alone(mpi: Mpi, env: dict[str, str]) -> None:
    assert run(mpi, env, 1, mpi.python, env["WHO"]).returncode == 0
    assert [line.rpartition(" ")[0] for line in said(env)] == ["0 1 0 1"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_init_joins_beside_mpi4py(mpi: Mpi, env: dict[str, str], when: str) -> None:
    """With MPI there before, they meet through it: the folder that they cannot use is not asked for."""
    if not mpi.has_mpi4py:
        pytest.skip("NOT TESTED, init() beside mpi4py: it is not installed (make mpi-mpich)")
    folder = {"CIRANDA_HANDOVER_FOLDER": "/proc/none"} if when == "before" else {}
    done = run(mpi, env, 2, mpi.python, env["WHO"], when, **folder)
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(" ")[0] for line in said(env)] == ["0 2 0 2", "1 2 1 2"]


KILLED = """
import os, signal, time, ciranda
ciranda.init()
open(f"{os.environ['OUT']}/{os.getpid()}", "w").close()
ciranda.barrier()
os.kill(os.getpid(), signal.SIGKILL) if ciranda.rank() == 1 else time.sleep(600)
"""


def test_a_rank_that_is_killed_ends_all_and_mpirun_says_so(mpi: Mpi, env: dict[str, str]) -> None:
    done = run(mpi, env, 3, mpi.python, "-c", KILLED)
    assert done.returncode != 0
    processes = [int(file.name) for file in Path(env["OUT"]).iterdir()]
    assert len(processes) == 3
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes), "a rank is left")


FAILS = """
import time, ciranda
ciranda.init()
ciranda.barrier()
if ciranda.rank() == 1:
    raise ValueError("mine")
time.sleep(600)
"""


def test_a_rank_that_raises_ends_all(mpi: Mpi, env: dict[str, str]) -> None:
    done = run(mpi, env, 2, mpi.python, "-c", FAILS)
    assert done.returncode != 0
    assert "ValueError: mine" in done.stderr


ENDS_LATER = """
import os, time, numpy, ciranda
ciranda.init()
rank = ciranda.rank()
first = ciranda.allgather(numpy.array([os.getpid()]), name="pids")[0]
ciranda.shutdown()

def lives():  # mpiexec may leave it a zombie until all have ended
    try:
        with open(f"/proc/{first}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

while rank == 1 and lives():
    time.sleep(0.01)
time.sleep(rank)  # as long as an mpirun that takes the first one's end for a failure needs to end this one
open(f"{os.environ['OUT']}/{rank}", "w").close()
"""


def test_a_rank_that_ends_early_does_not_end_the_others(mpi: Mpi, env: dict[str, str]) -> None:
    done = run(mpi, env, 2, mpi.python, "-c", ENDS_LATER)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(env["OUT"])) == ["0", "1"]


SECRET = """
import os, sys, ciranda
from ciranda.engines import rendezvous
ciranda.init()
with open(f"{os.environ['OUT']}/{ciranda.rank()}", "w") as file, open(rendezvous._kept.secret.path) as secret:
    print(secret.read(), file=file)
for place in ("environ", "cmdline"):
    with open(f"/proc/self/{place}", "rb") as file:
        print(file.read())
print(dict(os.environ))
"""


def test_the_secret_is_in_no_argument_environment_or_log(mpi: Mpi, env: dict[str, str]) -> None:
    verbose = () if mpi.is_open_mpi else ("-verbose",)  # prints what is put, and to whom it is given
    told = mpi.command(2, mpi.python, "-c", SECRET, more=verbose)
    done = subprocess.run(told, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (secret, other) = said(env)
    assert secret == other
    assert len(secret) == 64
    assert mpi.is_open_mpi or "ciranda-claim-0-0" in done.stdout + done.stderr  # which are the logs that may have it
    assert secret not in done.stdout + done.stderr


def test_ciranda_run_within_is_a_job_of_its_own(mpi: Mpi, env: dict[str, str]) -> None:
    done = run(mpi, env, 2, sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", mpi.python, env["WHO"])
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(" ")[0] for line in said(env)] == ["0 2 0 2", "0 2 0 2", "1 2 1 2", "1 2 1 2"]


STARTS_OTHERS = """
import os, subprocess, sys, ciranda
ciranda.init()
if ciranda.rank() == 0:
    done = subprocess.run([sys.executable, "-c", "import ciranda; ciranda.init()"], capture_output=True, text=True)
    print(done.stderr)
    subprocess.run(os.environ["ANOTHER"].split(), check=True)
ciranda.barrier()
"""


def test_what_a_rank_starts_does_not_take_its_place_but_may_be_another_job(mpi: Mpi, env: dict[str, str]) -> None:
    another = shlex.join(mpi.command(2, mpi.python, env["WHO"]))
    within = f"env -u PMIX_NAMESPACE -u PMIX_RANK {another}" if mpi.is_open_mpi else another
    if mpi.is_open_mpi:
        within = "true"  # Open MPI refuses an mpirun within another
    done = run(mpi, env, 2, mpi.python, "-c", STARTS_OTHERS, ANOTHER=within)
    assert done.returncode == 0, done.stderr
    assert "this program was started by rank 0" in done.stdout or "is not open in this process" in done.stdout
    assert mpi.is_open_mpi or [line.rpartition(" ")[0] for line in said(env)] == ["0 2 0 2", "1 2 1 2"]


def between(hosts: Hosts, mpi: Mpi, env: dict[str, str], tmp_path: Path) -> list[str]:
    """What has mpirun start one process on each of the first two hosts, by ssh."""
    ssh = tmp_path / "ssh.sh"
    ssh.write_text(f'#!/bin/sh\nexec ssh -F {hosts.ssh_config} "$@"\n')
    ssh.chmod(0o755)
    addresses = ",".join(host.address for host in hosts.hosts[:2])
    if not mpi.is_open_mpi:
        return ["-hosts", addresses, "-iface", "eth0", "-ppn", "1", "-launcher", "ssh", "-launcher-exec", str(ssh)]
    passed_on = [word for name in env if name not in mpi.env or name == "PYTHONPATH" for word in ("-x", name)]
    at_home = ["--prefix", str(Path(mpi.mpirun).parents[1])]
    by_ssh = ["--mca", "plm_rsh_agent", str(ssh), "--mca", "oob_tcp_if_include", "eth0"]
    return ["--host", addresses, "--map-by", "node", *at_home, *by_ssh, *passed_on]


def test_two_hosts(mpi: Mpi, env: dict[str, str], hosts: Hosts, tmp_path: Path) -> None:
    """By files that both see under Open MPI; mpiexec's ranks need none."""
    folder = {} if mpi.is_open_mpi else {"CIRANDA_HANDOVER_FOLDER": "/proc/none"}
    told = mpi.command(2, mpi.python, env["WHO"], more=between(hosts, mpi, env, tmp_path))
    done = subprocess.run(
        [*hosts[0].enter, *told], env={**env, **folder}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert said(env) == ["0 2 0 1 hostA", "1 2 0 1 hostB"]


WORKS_UNTIL_TOLD = """
import os, numpy, ciranda
ciranda.init()
rank = ciranda.rank()
open(f"{os.environ['OUT']}/{rank}.up", "w").close()
while not ciranda.allreduce(float(os.path.exists(os.environ["OUT"] + "/go")), op=ciranda.Max, name="go"):
    pass
open(f"{os.environ['OUT']}/{rank}", "w").close()
"""


def test_strangers_get_in_nowhere_and_the_job_goes_on(
    mpi: Mpi, env: dict[str, str], hosts: Hosts, tmp_path: Path
) -> None:
    out = Path(env["OUT"])
    told = mpi.command(2, mpi.python, "-c", WORKS_UNTIL_TOLD, more=between(hosts, mpi, env, tmp_path))
    with strangers(hosts[2].enter, hosts[0].holder, hosts[0].address, tmp_path) as who:
        command = [*hosts[0].enter, *told]
        job = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: len(list(out.glob("*.up"))) == 2, "the start")
            who.until_called_again()
        finally:
            (out / "go").touch()
            _, err = job.communicate(timeout=120)
        assert job.returncode == 0, err
        assert sorted(each.name for each in out.iterdir() if each.name.isdigit()) == ["0", "1"]
        assert who.report().heard == ()


def test_a_folder_that_two_hosts_do_not_share_is_said(
    mpi: Mpi, env: dict[str, str], hosts: Hosts, tmp_path: Path
) -> None:
    if not mpi.is_open_mpi:
        pytest.skip("mpiexec's ranks meet without a folder")
    apart = {**env, "CIRANDA_HANDOVER_FOLDER": "/dev/shm/handover", "CIRANDA_START_TIMEOUT": "3"}
    told = mpi.command(2, mpi.python, env["WHO"], more=between(hosts, mpi, apart, tmp_path))
    done = subprocess.run([*hosts[0].enter, *told], env=apart, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "rank 1 of 2 did not come to /dev/shm/handover" in done.stderr
    assert "Is the folder on a file system that all nodes share?" in done.stderr
