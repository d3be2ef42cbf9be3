"""Slurm starts the ranks, or the agents of `ciranda run`: on a real cluster, of network namespaces."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mpis import HOW, MPIS
from slurm_cluster import Cluster

from recorded import SALLOC, SRUN, SRUN_PMI2, SRUN_PMIX, form

pytestmark = pytest.mark.multiprocess

WHO = """
import os, numpy, ciranda
ciranda.init()
rank, size = ciranda.rank(), ciranda.size()
total = ciranda.allreduce(numpy.arange(4.0) * (rank + 1), op=ciranda.Sum, name="x")
assert (total == numpy.arange(4.0) * (size * (size + 1) / 2)).all()
numbers = rank, size, ciranda.local_rank(), ciranda.local_size(), ciranda.cross_rank(), ciranda.cross_size()
with open(os.environ["OUT"] + f"/{rank}.{os.getpid()}", "w") as file:
    print(*numbers, os.uname().nodename, file=file)
ciranda.shutdown()
"""
CIRANDA = (sys.executable, "-m", "ciranda.launch.cli")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """For ranks: where they write what they are, and where they meet."""
    (tmp_path / "who.py").write_text(WHO)
    (tmp_path / "said").mkdir()
    return {
        "OUT": str(tmp_path / "said"),
        "WHO": str(tmp_path / "who.py"),
        "PY": sys.executable,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CIRANDA_START_TIMEOUT": "60",
        "OMP_NUM_THREADS": "1",
    }


def said(env: dict[str, str]) -> list[str]:
    """What the ranks have written, and what they have left where they met: nothing."""
    assert not [each for each in Path(env["XDG_CACHE_HOME"]).rglob("*") if each.name not in ("ciranda", "handover")]
    return sorted(file.read_text().strip() for file in Path(env["OUT"]).iterdir())


def numbers(lines: list[str]) -> list[str]:
    """Without the names of hosts."""
    return [line.rpartition(" ")[0] for line in lines]


SAY = "import json, os; os.environ.get('SLURM_PROCID', '1') == '1' and print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        (["srun", "--mpi=none", "-N2", "-n3", "-m", "block"], SRUN),
        (["srun", "--mpi=pmi2", "-N2", "-n3", "-m", "block"], SRUN_PMI2),
        (["srun", "--mpi=pmix", "-N2", "-n3", "-m", "block"], SRUN_PMIX),
        (["salloc", "-N2", "-n4", "-m", "block"], SALLOC),
    ],
    ids=["none", "pmi2", "pmix", "salloc"],
)
def test_it_sets_the_variables_of_the_table(cluster: Cluster, command: list[str], recorded: dict[str, str]) -> None:
    code, out, err = cluster.run(*command, sys.executable, "-S", "-c", SAY)
    assert code == 0, err
    assert form(recorded, json.loads(out)) == form(recorded, recorded)


# --- srun python train.py ---


def without_folder(env: dict[str, str]) -> dict[str, str]:
    """The same, where no rank can write a file for the others."""
    return {**env, "XDG_CACHE_HOME": "/proc/none"}


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_init_joins_under_srun(cluster: Cluster, env: dict[str, str], mpi: str) -> None:
    env = env if mpi == "none" else without_folder(env)
    command = ["srun", f"--mpi={mpi}", "-N3", "-n4", "--distribution=cyclic", sys.executable, env["WHO"]]
    code, _, err = cluster.run(*command, **env)
    assert code == 0, err
    assert said(env) == ["0 4 0 2 0 3 node0", "1 4 0 1 1 3 node1", "2 4 0 1 2 3 node2", "3 4 1 2 0 1 node0"]


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_commands_of_one_step_meet_one_after_the_other(cluster: Cluster, env: dict[str, str], mpi: str) -> None:
    env = env if mpi == "none" else without_folder(env)
    both = '"$PY" "$WHO" && "$PY" "$WHO"'
    code, _, err = cluster.run("srun", f"--mpi={mpi}", "-N2", "-n2", "sh", "-c", both, **env)
    assert code == 0, err
    assert numbers(said(env)) == ["0 2 0 1 0 2", "0 2 0 1 0 2", "1 2 0 1 1 2", "1 2 0 1 1 2"]


def test_ranks_meet_by_files_if_told_to_or_without_the_connection_to_srun(
    cluster: Cluster, env: dict[str, str]
) -> None:
    """subprocess passes no connection of PMI-2 on."""
    child = "import os, subprocess, sys; sys.exit(subprocess.call([sys.executable, os.environ['WHO']]))"
    folder = {"CIRANDA_HANDOVER_FOLDER": f"{env['XDG_CACHE_HOME']}/ciranda/handover"}
    ways = [
        (("--mpi=pmi2", "-N1", "-n2"), ("-c", child), {}),
        (("--mpi=pmi2", "-N1", "-n2"), (env["WHO"],), folder),
        (("--mpi=pmix", "-N1", "-n2"), (env["WHO"],), folder),
    ]
    for how, rank, more in ways:
        code, _, err = cluster.run("srun", *how, sys.executable, *rank, **env, **more)
        assert code == 0, (how, err)
        code, _, err = cluster.run(
            "srun", *how, sys.executable, *rank, **{**without_folder(env), "CIRANDA_HANDOVER_FOLDER": "/proc/none"}
        )
        assert code != 0
        assert "init() cannot use the folder /proc/none" in err, (how, err)
    assert numbers(said(env)) == ["0 2 0 2 0 1"] * len(ways) + ["1 2 1 2 0 1"] * len(ways)


def test_what_a_task_starts_reaches_srun_by_pmix(cluster: Cluster, env: dict[str, str]) -> None:
    child = "import os, subprocess, sys; sys.exit(subprocess.call([sys.executable, os.environ['WHO']]))"
    code, _, err = cluster.run("srun", "--mpi=pmix", "-N2", "-n2", sys.executable, "-c", child, **without_folder(env))
    assert code == 0, err
    assert numbers(said(env)) == ["0 2 0 1 0 2", "1 2 0 1 1 2"]


BESIDE_MPI = """
import os, sys
def mpi():
    from mpi4py import MPI
    assert (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size) == (int(os.environ["SLURM_PROCID"]), 2)
sys.argv[1] == "before" and mpi()
exec(open(os.environ["WHO"]).read())
sys.argv[1] == "after" and mpi()
"""


def test_mpi_and_init_share_one_connection_of_pmi2_if_mpi_is_first(
    cluster: Cluster, env: dict[str, str], tmp_path: Path
) -> None:
    mpich = MPIS["mpich"]
    if mpich is None or not mpich.has_mpi4py:
        pytest.skip(f"NOT TESTED, mpi4py under srun --mpi=pmi2: MPICH is not installed ({HOW['mpich']})")
    (tmp_path / "beside.py").write_text(BESIDE_MPI)
    more = {name: value for name, value in mpich.env.items() if name == "PYTHONPATH"}
    told = ["srun", "--mpi=pmi2", "-N2", "-n2", mpich.python, str(tmp_path / "beside.py")]
    code, _, err = cluster.run(*told, "before", **without_folder(env), **more)
    assert code == 0, err
    code, _, err = cluster.run(*told, "after", **env, **more)
    assert code != 0
    assert "MPI_Init" in err or "Init_thread" in err, err  # MPI says so
    assert "RuntimeWarning: init() has used the connection to srun (PMI_FD=" in err, err
    code, _, err = cluster.run(
        *told, "after", **env, **more, CIRANDA_HANDOVER_FOLDER=f"{tmp_path}/cache/ciranda/handover"
    )
    assert code == 0, err


def test_mpi_that_is_first_and_init_share_srun_s_pmix(cluster: Cluster, env: dict[str, str], tmp_path: Path) -> None:
    mpi = MPIS["system"]
    if mpi is None or not mpi.has_mpi4py:
        pytest.skip(f"NOT TESTED, mpi4py under srun --mpi=pmix: Open MPI is not installed ({HOW['system']})")
    (tmp_path / "beside.py").write_text(BESIDE_MPI)
    more = {name: value for name, value in mpi.env.items() if name in ("PYTHONPATH", "MPI4PY_LIBMPI")}
    told = ["srun", "--mpi=pmix", "-N2", "-n2", mpi.python, str(tmp_path / "beside.py")]
    code, _, err = cluster.run(*told, "before", **without_folder(env), **more)
    assert code == 0, err
    code, _, err = cluster.run(*told, "after", **env, **more)
    assert code != 0
    assert "MPI_Init" in err, err  # MPI says so
    assert "RuntimeWarning: init() has used the connection to srun (PMIX_NAMESPACE=" in err, err


IN_C = """
import ctypes, os, sys
mpi = ctypes.CDLL(sys.argv[1])
mpi.MPI_Init(None, None)
exec(open(os.environ["WHO"]).read())
mpi.MPI_Finalize()
"""


@pytest.mark.parametrize(("plugin", "which"), [("pmi2", "mpich"), ("pmix", "system")])
def test_init_joins_where_a_library_in_c_has_begun_mpi(
    cluster: Cluster, env: dict[str, str], plugin: str, which: str
) -> None:
    """By files where MPI has the socket of PMI-2; both use PMIx."""
    mpi = MPIS[which]
    if mpi is None:
        pytest.skip(f"NOT TESTED, MPI in C under srun --mpi={plugin}: it is not installed ({HOW[which]})")
    library = mpi.library or str(Path(mpi.mpirun).parents[1] / "lib" / "libmpi.so.12")
    code, _, err = cluster.run(
        "srun", f"--mpi={plugin}", "-N2", "-n2", sys.executable, "-c", IN_C, library,
        **(env if plugin == "pmi2" else without_folder(env)),
    )  # fmt: skip
    assert code == 0, err
    assert numbers(said(env)) == ["0 2 0 1 0 2", "1 2 0 1 1 2"]


LEAVE_STALE = """
import json, os
from ciranda.engines.handover import folder_name, safe_folder
from ciranda.engines.identity import identity
found = identity(os.environ)
folder = safe_folder(os.environ) / folder_name(found)
folder.mkdir(mode=0o700, exist_ok=True)
if found.rank == 0:
    old = {"nonces": ["0" * 32, "1" * 32], "store": "127.0.0.1:9", "job": "old", "secret": "00" * 32, "numbers": []}
    (folder / "answer").write_text(json.dumps(old))
"""


def test_what_a_killed_job_has_left_is_not_used(cluster: Cluster, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "stale.py").write_text(LEAVE_STALE)
    both = f'"$PY" {tmp_path}/stale.py && "$PY" "$WHO"'
    code, _, err = cluster.run("srun", "-N2", "-n2", "sh", "-c", both, **env)
    assert code == 0, err
    assert numbers(said(env)) == ["0 2 0 1 0 2", "1 2 0 1 1 2"]


def test_a_task_that_does_not_come_is_named(cluster: Cluster, env: dict[str, str]) -> None:
    some = '[ "$SLURM_PROCID" = 1 ] || "$PY" "$WHO"'
    code, _, err = cluster.run("srun", "-N3", "-n3", "sh", "-c", some, **{**env, "CIRANDA_START_TIMEOUT": "5"})
    assert code != 0
    for rank in (0, 2):
        assert f"TimeoutError: init() of rank {rank} of 3: rank 1 of 3 did not come to" in err
    assert "CIRANDA_HANDOVER_FOLDER names another" in err
    assert said(env) == []


@pytest.mark.parametrize("mpi", ["pmi2", "pmix"])
def test_a_task_that_does_not_come_is_named_by_its_node(cluster: Cluster, env: dict[str, str], mpi: str) -> None:
    """A second try cannot be: srun would take it for a task that has come. PMIx forgets where all have."""
    some = '[ "$SLURM_PROCID" = 1 ] || "$PY" "$WHO" || "$PY" "$WHO"'
    short = {**without_folder(env), "CIRANDA_START_TIMEOUT": "3"}
    code, _, err = cluster.run("srun", f"--mpi={mpi}", "-N2", "-n3", "-m", "block", "sh", "-c", some, **short)
    assert code != 0
    first = "TimeoutError: init() of rank 0 of 3: not all 3 tasks that srun has started have called init() within 3 s"
    assert f"{first}: on node node0 rank 1 has not" in err, err
    assert f"{first.replace('rank 0', 'rank 2')}; on node node1 all have" in err, err
    n_nodes = {"pmi2": 2, "pmix": 1}[mpi]
    assert err.count("cannot be used any more: init() has failed in this task before") == n_nodes, err
    assert said(env) == []


def test_a_folder_that_the_nodes_do_not_share_is_said(cluster: Cluster, env: dict[str, str]) -> None:
    """Each node has a /dev/shm of its own."""
    apart = {**env, "CIRANDA_HANDOVER_FOLDER": "/dev/shm/handover", "CIRANDA_START_TIMEOUT": "3"}
    code, _, err = cluster.run("srun", "-N2", "-n2", sys.executable, env["WHO"], **apart)
    assert code != 0
    assert "init() of rank 0 of 2: rank 1 of 2 did not come to /dev/shm/handover/ciranda-srun-" in err
    assert "init() of rank 1 of 2: rank 0 gave no answer in /dev/shm/handover/ciranda-srun-" in err
    assert "Is the folder on a file system that all nodes share?" in err


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_why_rank_0_cannot_host_is_told_by_all(cluster: Cluster, env: dict[str, str], mpi: str) -> None:
    code, _, err = cluster.run(
        "srun",
        f"--mpi={mpi}",
        "-N2",
        "-n2",
        sys.executable,
        env["WHO"],
        **env,
        CIRANDA_INTERFACE="none0",
        SLURM_KILL_BAD_EXIT="0",
    )
    assert code != 0
    for rank in (0, 1):
        assert f"InvalidArgumentError: init() of rank {rank} of 2: rank 0 cannot host the rendezvous" in err
    assert said(env) == []


def test_two_launchers_that_contradict_each_other_are_named(cluster: Cluster, env: dict[str, str]) -> None:
    one = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    code, _, err = cluster.run("srun", "-n2", sys.executable, env["WHO"], **env, **one)
    assert code != 0
    assert "SLURM_STEP_NUM_TASKS=2, of srun, and WORLD_SIZE=1 contradict each other" in err


# --- an allocation is no step ---


def batch(cluster: Cluster, env: dict[str, str], *options: str, script: str) -> str:
    """Run a batch script to its end; its output."""
    path = Path(env["OUT"]).parent / "job.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    out = path.with_suffix(".out")
    code, _, err = cluster.run("sbatch", "--wait", f"--output={out}", *options, str(path), **env)
    text = out.read_text()
    assert code == 0, err + text
    return text


@pytest.mark.parametrize("around", [("salloc", "-N2", "--ntasks-per-node=2"), ("srun", "-n2")])
def test_an_mpiexec_in_an_allocation_says_who_is_who(
    cluster: Cluster, env: dict[str, str], around: tuple[str, ...]
) -> None:
    """It starts helpers by srun, whose variables the ranks have too. Within srun each task starts a job of its own."""
    mpich = MPIS["mpich"]
    if mpich is None:
        pytest.skip(f"NOT TESTED, mpiexec within Slurm: MPICH is not installed ({HOW['mpich']})")
    more = {name: value for name, value in mpich.env.items() if name == "PYTHONPATH"}
    told = mpich.command(
        4, mpich.python, env["WHO"], more=("-iface", "eth0") if around[0] == "salloc" else ("-launcher", "fork")
    )
    code, out, err = cluster.run(*around, *told, **env, **more)
    assert code == 0, (out, err)
    ranks = ["0 4 0 2 0 2", "1 4 1 2 0 2", "2 4 0 2 1 2", "3 4 1 2 1 2"]
    assert numbers(said(env)) == (ranks if around[0] == "salloc" else [f"{n // 2} 4 {n // 2} 4 0 1" for n in range(8)])


def test_a_batch_script_is_alone_and_told_so(cluster: Cluster, env: dict[str, str]) -> None:
    text = batch(cluster, env, "-N2", "-n4", script='"$PY" "$WHO"')
    assert said(env) == ["0 1 0 1 0 1 node0"]
    assert "RuntimeWarning: SLURM_NTASKS=4: Slurm job" in text


def test_a_job_submitted_in_a_step_of_another_is_alone(cluster: Cluster, env: dict[str, str]) -> None:
    script = Path(env["OUT"]).parent / "inner.sh"
    script.write_text('#!/bin/sh\n"$PY" "$WHO"\n')
    inner = f'[ "$SLURM_PROCID" = 1 ] || sbatch --wait -n1 --output={script}.out {script}'
    code, _, err = cluster.run("srun", "-N1", "-n2", "sh", "-c", inner, **env)
    assert code == 0, err + Path(f"{script}.out").read_text()
    assert numbers(said(env)) == ["0 1 0 1 0 1"]


def test_a_step_of_one_task_is_alone(cluster: Cluster, env: dict[str, str]) -> None:
    code, _, err = cluster.run("srun", "-n1", sys.executable, env["WHO"], **env)
    assert code == 0, err
    assert "Warning" not in err
    assert numbers(said(env)) == ["0 1 0 1 0 1"]


def test_the_doctor_says_what_init_sees(cluster: Cluster, env: dict[str, str]) -> None:
    code, out, err = cluster.run("srun", "-n2", *CIRANDA, "doctor", "--json", **env)
    assert code == 0, err
    assert "srun: rank 0 of 2 (SLURM_STEP_NUM_TASKS=2, SLURM_PROCID=0, SLURM_JOB_ID=" in out
    assert "srun: rank 1 of 2 (SLURM_STEP_NUM_TASKS=2, SLURM_PROCID=1, SLURM_JOB_ID=" in out


# --- ciranda run in an allocation ---


@pytest.mark.parametrize(
    ("options", "more"), [(["-n4"], []), (["-n4"], ["-np", "4"]), (["-n2"], ["--nproc-per-node", "2"])]
)
def test_ciranda_run_takes_nodes_and_sizes_of_the_allocation(
    cluster: Cluster, env: dict[str, str], options: list[str], more: list[str]
) -> None:
    command = ["salloc", "-N2", "--ntasks-per-node=2" if options == ["-n4"] else "--ntasks-per-node=1", *options]
    code, _, err = cluster.run(*command, *CIRANDA, "run", *more, sys.executable, env["WHO"], **env)
    assert code == 0, err
    assert said(env) == ["0 4 0 2 0 2 node0", "1 4 1 2 0 2 node0", "2 4 0 2 1 2 node1", "3 4 1 2 1 2 node1"]


IN_A_POOL = """
import os, socket
from ciranda.launch import Pool
def where():
    import ciranda
    ciranda.init()
    return ciranda.rank(), ciranda.local_rank(), socket.gethostname(), os.getpid()
with Pool() as pool:
    first = pool.run(where)
    assert pool.run(where) == first
    print(sorted(each[:3] for each in first))
"""


def test_a_pool_has_its_ranks_on_the_nodes_of_the_allocation(cluster: Cluster, env: dict[str, str]) -> None:
    command = ["salloc", "-N2", "-n3", sys.executable, "-c", IN_A_POOL]
    code, out, err = cluster.run(*command, **env)
    assert code == 0, err
    assert out.splitlines()[-1] == "[(0, 0, 'node0'), (1, 1, 'node0'), (2, 0, 'node1')]"


def test_a_batch_script_runs_it_on_all_nodes(cluster: Cluster, env: dict[str, str]) -> None:
    batch(cluster, env, "-N3", "--ntasks-per-node=1", script='"$PY" -m ciranda.launch.cli run "$PY" "$WHO"')
    assert said(env) == ["0 3 0 1 0 3 node0", "1 3 0 1 1 3 node1", "2 3 0 1 2 3 node2"]


def test_the_batch_script_that_is_printed_runs(cluster: Cluster, env: dict[str, str], tmp_path: Path) -> None:
    """Without `ciranda` on the PATH, in a folder and with words that have spaces."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    asked = ["--nodes=2", "--ntasks-per-node=2", f"--output={folder}/%x-%j.out", "--job-name=two words"]
    asked += ["--time=5", "--sbatch=--no-requeue"]
    command = [*CIRANDA, "slurm", "script", *asked, sys.executable, env["WHO"], "a b"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (folder / "job.sh").write_text(printed)
    code, _, err = cluster.run("sbatch", "--wait", str(folder / "job.sh"), **env)
    (output,) = folder.glob("*.out")
    assert code == 0, err + output.read_text()
    assert output.name.startswith("two words-")
    assert said(env) == ["0 4 0 2 0 2 node0", "1 4 1 2 0 2 node0", "2 4 0 2 1 2 node1", "3 4 1 2 1 2 node1"]


def test_from_where_no_node_is_and_by_named_hosts(cluster: Cluster, env: dict[str, str]) -> None:
    """As on a login node: all agents are srun's. There is no ssh on the PATH."""
    command = [
        "salloc",
        "--nodelist=node1,node2",
        "-n2",
        "--ntasks-per-node=1",
        *CIRANDA,
        "run",
        "-H",
        "node1:1,node2:2",
    ]
    code, _, err = cluster.run(*command, "--verbose", sys.executable, env["WHO"], **env)
    assert code == 0, err
    assert "node1 (srun): ranks 0" in err
    assert said(env) == ["0 3 0 1 0 2 node1", "1 3 0 2 1 2 node2", "2 3 1 2 0 1 node2"]


def test_a_rank_that_fails_on_another_node_is_reported(cluster: Cluster, env: dict[str, str]) -> None:
    program = "import os, sys, time; print('héllo', flush=True); sys.exit(7) if os.environ['RANK'] == '1' else None"
    program += "; time.sleep(600)"
    command = ["salloc", "-N2", "-n2", "--ntasks-per-node=1", *CIRANDA, "run", sys.executable, "-c", program]
    exit_code, out, err = cluster.run(*command, **env)
    assert exit_code == 7, err
    assert "ciranda: rank 1 on node1 failed first: exit code 7" in err
    assert "[1]<stdout>:héllo" in out


WAIT = """
import os, time
path = os.environ["OUT"] + "/" + os.environ["RANK"]
with open(path + ".tmp", "w") as file:
    file.write(str(os.getpid()))
os.rename(path + ".tmp", path)
time.sleep(600)
"""


def test_scancel_ends_all_ranks(cluster: Cluster, env: dict[str, str]) -> None:
    process = cluster.start("salloc", "-N2", "-n2", "--ntasks-per-node=1", "--job-name=endless", *CIRANDA, "run",
                            sys.executable, "-c", WAIT, **env)  # fmt: skip
    cluster.wait_until(["ls", env["OUT"]], lambda out: out.split() == ["0", "1"])
    pids = [int(file.read_text()) for file in Path(env["OUT"]).iterdir()]
    assert cluster.run("scancel", "--name=endless")[0] == 0
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    cluster.wait_until(["sh", "-c", "; ".join(f"ls -d /proc/{pid}" for pid in pids) + "; true"], lambda out: not out)
    assert "secret" not in err


ON_SIGNAL = """
import os, signal
def end(*_):
    with open(os.environ["OUT"] + "/got" + os.environ["RANK"], "w"):
        os._exit(0)
signal.signal(signal.SIGUSR1, end)
with open(os.environ["OUT"] + "/up" + os.environ["RANK"], "w"):
    while True:
        signal.pause()
"""


def test_a_signal_to_all_steps_reaches_every_rank(cluster: Cluster, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "on_signal.py").write_text(ON_SIGNAL)
    command = ["salloc", "-N2", "-n2", "--ntasks-per-node=1", "--job-name=told", *CIRANDA, "run"]
    process = cluster.start(*command, sys.executable, str(tmp_path / "on_signal.py"), **env)
    cluster.wait_until(["ls", env["OUT"]], lambda out: out.split() == ["up0", "up1"])
    assert cluster.run("scancel", "--signal=USR1", "--name=told")[0] == 0
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert sorted(each.name for each in Path(env["OUT"]).glob("got*")) == ["got0", "got1"]


def test_np_beyond_the_allocation_and_copies_by_srun_are_refused(cluster: Cluster, env: dict[str, str]) -> None:
    run = (*CIRANDA, "run", "-np", "3", sys.executable, env["WHO"])
    code, _, err = cluster.run("salloc", "-N2", "-n2", "--ntasks-per-node=1", *run, **env)
    assert code == 2
    assert "-np 3 is more than the 2 tasks of Slurm job" in err
    code, _, err = cluster.run("srun", "-n2", *CIRANDA, "run", sys.executable, env["WHO"], **env)
    assert code != 0
    assert "srun has started this command 2 times" in err
    assert said(env) == []


def test_a_python_that_is_not_there_is_named(cluster: Cluster, env: dict[str, str]) -> None:
    command = ["salloc", "-N2", "-n2", "--ntasks-per-node=1", *CIRANDA, "run", "--remote-python", "/none/python"]
    code, _, err = cluster.run(*command, sys.executable, env["WHO"], **env)
    assert code == 1
    assert re.search("cannot start ranks on node[01]: that Python is not there", err), err
