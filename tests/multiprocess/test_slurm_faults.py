"""What goes wrong in Slurm: nodes that are lost, jobs that are requeued, launchers that are killed, strangers."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import Cluster
from strangers import strangers

from ciranda.launch.processes import descendants

pytestmark = pytest.mark.multiprocess

CIRANDA = (sys.executable, "-m", "ciranda.launch.cli")
TWO_NODES = ("-N2", "-n2", "--ntasks-per-node=1")

# A rank that leaves its number and its job's secret, and goes on as its argument says.
RANK = """
import os, pathlib, sys, time, numpy, ciranda
out, how = pathlib.Path(os.environ["OUT"]), sys.argv[1]
if how == "idle" and os.environ["CIRANDA_RANK"]:
    (out / f"{os.environ['CIRANDA_RANK']}.{os.getpid()}").touch()
    time.sleep(600)
ciranda.init()
rank, size = ciranda.rank(), ciranda.size()
total = ciranda.allreduce(numpy.full(3, rank + 1.0), op=ciranda.Sum, name="x")
assert (total == size * (size + 1) / 2).all()
(out / f"{rank}.{os.getpid()}").touch()
while how == "works":
    ciranda.allreduce(numpy.ones(3), name="step")
if how == "until told":
    from ciranda.engines import rendezvous
    kept = rendezvous._kept.secret
    (out / "secret").write_text(open(kept.path if kept else os.environ["CIRANDA_SECRET_FILE"]).read())
    while not (out / "go").exists():
        time.sleep(0.01)
    ciranda.barrier()
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "said").mkdir()
    (tmp_path / "rank.py").write_text(RANK)
    return {
        "OUT": str(tmp_path / "said"),
        "RANK_PY": str(tmp_path / "rank.py"),
        "PY": sys.executable,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CIRANDA_START_TIMEOUT": "60",
        "OMP_NUM_THREADS": "1",
    }


def ranks(env: dict[str, str]) -> list[int]:
    """The ranks that have been there, in order."""
    return sorted(int(file.stem) for file in Path(env["OUT"]).iterdir() if file.suffix)


def pids(env: dict[str, str]) -> list[int]:
    return [int(file.suffix[1:]) for file in Path(env["OUT"]).iterdir() if file.suffix]


def pid_of(env: dict[str, str], rank: int) -> int:
    (file,) = Path(env["OUT"]).glob(f"{rank}.*")
    return int(file.suffix[1:])


def until(is_so: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(processes: list[int]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in processes)


def ciranda_run(env: dict[str, str], how: str, *options: str) -> list[str]:
    return [*CIRANDA, "run", *options, sys.executable, env["RANK_PY"], how]


def until_idle(cluster: Cluster) -> None:
    cluster.wait_until(["sinfo", "-h", "-t", "idle", "-o", "%D"], lambda out: out.strip() == "3")


# --- nodes and processes that are lost ---


@pytest.mark.parametrize("how", ["works", "idle"])
def test_a_node_that_loses_power_ends_the_job_which_names_it(cluster: Cluster, env: dict[str, str], how: str) -> None:
    """Ranks that make calls notice it, otherwise the launcher does, long before Slurm."""
    told = ["salloc", *TWO_NODES, "--nodelist=node0,node1", "--no-kill", *ciranda_run(env, how)]
    process = cluster.start(*told, **env, CIRANDA_LINK_TIMEOUT="1")
    until(lambda: ranks(env) == [0, 1], "the start")
    with cluster.hosts.cut(1):
        _, err = process.communicate(timeout=120)
        cluster.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=power")
    assert process.returncode == 1, err
    why = {
        "works": "RanksLostError: rank 1 (host node1, pid",
        "idle": "ciranda: the agent on node1 was lost, and with it ranks 1\n",
    }
    assert why[how] in err
    cluster.wait_until(["scontrol", "update", "NodeName=node1", "State=RESUME"], lambda _: True)
    until_idle(cluster)
    until(lambda: gone(pids(env)), "a rank is left")


def launcher_of(process: subprocess.Popen[str]) -> int:
    (launcher,) = [pid for pid in descendants(process.pid) if "run" in command_of(pid) and "-m" in command_of(pid)]
    return launcher


@pytest.mark.parametrize("by", ["salloc", "sbatch"])
def test_ranks_end_when_the_launcher_s_node_loses_power(cluster: Cluster, env: dict[str, str], by: str) -> None:
    """Where they make no calls too, long before Slurm, which then takes the node for down."""
    run = ciranda_run(env, "idle")
    told = run if by == "salloc" else ["--wait", "--no-requeue", "--output=/dev/null", f"--wrap={shlex.join(run)}"]
    options = [*TWO_NODES, "--nodelist=node1,node2"]
    process = cluster.start(by, *options, *told, host=1 if by == "salloc" else 0, **env, CIRANDA_LINK_TIMEOUT="1")
    until(lambda: ranks(env) == [0, 1], "the start")
    rank_there = pid_of(env, 1)
    with cluster.hosts.cut(1):
        until(lambda: gone([rank_there]), "the rank on the other node is left")
        cluster.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=power")
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0, err
    cluster.wait_until(["scontrol", "update", "NodeName=node1", "State=RESUME"], lambda _: True)
    until_idle(cluster)
    until(lambda: gone(pids(env)), "a rank is left")


def test_a_launcher_whose_node_is_taken_for_down_ends_with_all_ranks(cluster: Cluster, env: dict[str, str]) -> None:
    """The node itself works on, and its processes too: Slurm ends the job on the others."""
    told = ["salloc", *TWO_NODES, "--nodelist=node1,node2", *ciranda_run(env, "idle")]
    process = cluster.start(*told, host=1, **env)
    until(lambda: ranks(env) == [0, 1], "the start")
    cluster.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=slurmd")
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0, err
    until(lambda: gone(pids(env)), "a rank is left")
    cluster.wait_until(["scontrol", "update", "NodeName=node1", "State=RESUME"], lambda _: True)
    until_idle(cluster)


def test_a_launcher_that_is_stopped_is_waited_for(cluster: Cluster, env: dict[str, str]) -> None:
    """With all that it has started: its host acknowledges what the agents send."""
    process = cluster.start("salloc", *TWO_NODES, *ciranda_run(env, "until told"), **env, CIRANDA_LINK_TIMEOUT="1")
    until(lambda: ranks(env) == [0, 1] and (Path(env["OUT"]) / "secret").exists(), "the start")
    stopped = [pid for pid in descendants(process.pid) if command_of(pid)[0].endswith(("srun", "python"))]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(5.0)  # an agent waits for 2
    assert not gone(pids(env))
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    (Path(env["OUT"]) / "go").touch()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_is_killed_is_reported(cluster: Cluster, env: dict[str, str], culprit: int) -> None:
    code = (
        "import os, signal, time; os.environ['RANK'] == os.environ['CULPRIT'] and os.kill(os.getpid(), signal.SIGKILL)"
    )
    told = [*CIRANDA, "run", sys.executable, "-c", f"{code}; time.sleep(600)"]
    exit_code, _, err = cluster.run("salloc", *TWO_NODES, *told, **env, CULPRIT=str(culprit))
    assert exit_code == 137, err
    assert re.search(rf"ciranda: rank {culprit} on node[0-2] failed first: killed by SIGKILL", err)


def test_the_others_say_who_was_lost_also_where_srun_has_served_them_by_pmix(
    cluster: Cluster, env: dict[str, str], tmp_path: Path
) -> None:
    """Slurm would kill them, were the connection to it still there. srun may end before it has shown all they say."""
    own = f"--error={tmp_path}/%t"
    told = ["srun", "--mpi=pmix", own, *TWO_NODES, sys.executable, env["RANK_PY"], "works"]
    process = cluster.start(*told, **env, CIRANDA_HANDOVER_FOLDER="")
    until(lambda: ranks(env) == [0, 1], "the start")
    os.kill(pid_of(env, 1), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    said = (tmp_path / "0").read_text(encoding="utf-8")
    assert "RanksLostError: rank 1 (host node" in said, err + said


def test_nothing_is_left_of_a_launcher_that_is_killed(cluster: Cluster, env: dict[str, str]) -> None:
    process = cluster.start("salloc", *TWO_NODES, *ciranda_run(env, "idle"), **env)
    until(lambda: ranks(env) == [0, 1], "the start")
    os.kill(launcher_of(process), signal.SIGKILL)
    process.communicate(timeout=120)
    until(lambda: gone(pids(env)), "a rank is left")


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    except OSError:
        return []


# --- several at once, and one after another ---


def test_two_steps_of_one_allocation_are_two_worlds(cluster: Cluster, env: dict[str, str]) -> None:
    """Also beside a `ciranda run` there."""
    srun = 'srun --overlap -N2 -n2 "$PY" "$RANK_PY" once'
    run = '"$PY" -m ciranda.launch.cli run -np 3 "$PY" "$RANK_PY" once'
    both = f"{srun} & a=$!; {srun} & b=$!; {run} && wait $a && wait $b"
    code, _, err = cluster.run("salloc", "-N2", "-n4", "--ntasks-per-node=2", "sh", "-c", both, **env)
    assert code == 0, err
    assert ranks(env) == [0, 0, 0, 1, 1, 1, 2]


REQUEUED = """#!/bin/sh
touch "$OUT/restarted$SLURM_RESTART_COUNT"
exec srun "$PY" "$RANK_PY" "until told"
"""


def test_a_requeued_job_does_not_meet_what_it_was(cluster: Cluster, env: dict[str, str]) -> None:
    """It has the same number, and the folder where its ranks meet."""
    script, out = Path(env["OUT"]).parent / "job.sh", Path(env["OUT"])
    script.write_text(REQUEUED)
    options = [*TWO_NODES, "--requeue", "--open-mode=append", f"--output={script}.out", "--job-name=again"]
    code, said, err = cluster.run("sbatch", "--parsable", *options, str(script), **env)
    assert code == 0, err
    until(lambda: ranks(env) == [0, 1], "the first start")
    first = pids(env)
    assert cluster.run("scontrol", "requeue", said.strip())[0] == 0
    until(lambda: gone(first), "the first job's ranks are left")
    time.sleep(2)  # what is started in the second in which it was ended Slurm refuses: "Job credential revoked"
    while not (out / "restarted1").exists():  # Slurm itself would wait for two minutes
        cluster.run("scontrol", "update", f"JobId={said.strip()}", "StartTime=now")
    until(lambda: ranks(env) == [0, 0, 1, 1], "that they meet again")
    (out / "go").touch()
    cluster.wait_until(["squeue", "-h", "-n", "again"], lambda text: not text)
    assert (out / "restarted1").exists()
    assert "Error" not in Path(f"{script}.out").read_text().partition("CANCELLED")[2]


ON_SIGNAL = """
import os, signal
def end(*_):
    open(os.environ["OUT"] + "/saved" + os.environ["RANK"], "w").close()
    os._exit(0)
signal.signal(signal.SIGUSR1, end)
open(f"{os.environ['OUT']}/{os.environ['RANK']}.{os.getpid()}", "w").close()
while True:
    signal.pause()
"""


def test_a_signal_to_the_batch_script_reaches_every_rank(cluster: Cluster, env: dict[str, str], tmp_path: Path) -> None:
    """As before the time limit, by --signal=B:USR1@60."""
    (tmp_path / "on_signal.py").write_text(ON_SIGNAL)
    script = tmp_path / "job.sh"
    command = [*CIRANDA, "slurm", "script", "--nodes=2", "--ntasks-per-node=1", f"--output={tmp_path}/out"]
    printed = subprocess.run(
        [*command, "--job-name=warned", sys.executable, str(tmp_path / "on_signal.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    script.write_text(printed.stdout)
    process = cluster.start("sbatch", "--wait", str(script), **env)
    until(lambda: ranks(env) == [0, 1], "the start")
    assert cluster.run("scancel", "--batch", "--signal=USR1", "--name=warned")[0] == 0
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err + (tmp_path / "out").read_text()
    assert sorted(each.name for each in Path(env["OUT"]).glob("saved*")) == ["saved0", "saved1"]


# --- launchers within launchers, and numbers that cannot be ---


def test_ciranda_run_within_a_step_is_a_job_of_its_own(cluster: Cluster, env: dict[str, str]) -> None:
    code, _, err = cluster.run("srun", "-N2", "-n2", *ciranda_run(env, "once", "-np", "2"), **env)
    assert code == 0, err
    assert ranks(env) == [0, 0, 1, 1]


def test_no_ranks_at_all_are_refused(cluster: Cluster, env: dict[str, str]) -> None:
    code, _, err = cluster.run("salloc", *TWO_NODES, *ciranda_run(env, "once", "-np", "0"), **env)
    assert code == 2, err
    assert "-np 0" in err


OTHER_VERSION = """
from ciranda.launch import protocol
protocol.VERSION += 1
"""


def test_a_ciranda_of_another_version_on_a_node_is_refused(
    cluster: Cluster, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    told = ciranda_run(env, "once", "--remote-python", str(python))
    code, _, err = cluster.run("salloc", *TWO_NODES, *told, **env)
    assert code == 1, err
    assert "of the protocol" in err, err
    assert ranks(env) == []


OTHER_RELEASE = """
import os
if os.environ.get("SLURM_PROCID") == "1" and "TASK" in os.environ:
    import ciranda._core
    ciranda._core.__version__ = "0.0.1"
"""


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_a_ciranda_of_another_version_in_a_task_is_refused_by_name_on_all(
    cluster: Cluster, env: dict[str, str], tmp_path: Path, mpi: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_RELEASE)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = ["srun", f"--mpi={mpi}", *TWO_NODES, sys.executable, env["RANK_PY"], "once"]
    code, _, err = cluster.run(*told, **env, TASK="1", PYTHONPATH=path)
    assert code != 0
    for rank in (0, 1):
        assert f"init() of rank {rank} of 2: not all have the same version of Ciranda: " in err, err
    assert err.count("; 0.0.1 on rank 1. Install one version on all hosts") == 2, err
    assert ranks(env) == []


# --- the secret ---

# Rank 1 comes late.
LATE = """
while [ "${CIRANDA_RANK:-$SLURM_PROCID}" = 1 ] && [ ! -e "$OUT/late" ]; do sleep 0.05; done
exec "$PY" "$RANK_PY" "until told"
"""


@pytest.mark.parametrize("by", [("srun",), ("srun", "--mpi=pmi2"), ("srun", "--mpi=pmix"), (*CIRANDA, "run")])
def test_strangers_do_no_harm_and_slurm_shows_no_secret(
    cluster: Cluster, env: dict[str, str], tmp_path: Path, by: tuple[str, ...]
) -> None:
    """They call at the first node's ports, also while rank 0 waits for rank 1. In a step it listens nowhere then."""
    out, (first, _, third) = Path(env["OUT"]), cluster.hosts.hosts
    options = [*TWO_NODES, "--nodelist=node0,node1", "--job-name=seen"]
    with strangers(third.enter, first.holder, first.address, tmp_path) as who:
        process = cluster.start("salloc", *options, *by, "sh", "-c", LATE, **env)
        try:
            if by[0] != "srun":
                who.until_called_again()
            (out / "late").touch()
            until(lambda: ranks(env) == [0, 1] and (out / "secret").exists(), "that they meet")
            who.until_called_again()
            secret = (out / "secret").read_text()
            shown = [cluster.run("scontrol", "--details", "show", what)[1] for what in ("job", "step", "node")]
            shown += [log.read_text(errors="replace") for log in cluster.folder.glob("*.log")]
            shown += [shown_of(pid) for pid in Path("/proc").iterdir() if pid.name.isdigit()]
        finally:
            (out / "go").touch()
            said, err = process.communicate(timeout=120)
        assert who.report().heard == ()
    assert process.returncode == 0, err
    assert len(secret) == 64
    assert "JobName=seen" in "".join(shown)
    assert not [text[:200] for text in (*shown, said, err) if secret in text]


def shown_of(process: Path) -> str:
    """The arguments and the environment of a process."""
    try:
        return "".join((process / name).read_text(errors="replace") for name in ("cmdline", "environ"))
    except OSError:
        return ""
