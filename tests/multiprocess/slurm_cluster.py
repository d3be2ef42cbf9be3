"""A Slurm cluster of network namespaces: Debian's slurmctld, slurmd and munge, a daemon on each host.

The controller runs on the first host. Nothing of this machine's network, configuration or services is touched. Node
names are known to Slurm alone: no resolver has them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import netns

_CPUS = 4  # of each node, as Slurm counts: nothing is bound to them
_PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "sbatch", "scontrol", "scancel", "sinfo", "munged")
_PATH = os.environ.get("PATH", "") + ":/usr/sbin"


def why_not() -> str | None:
    """Why there can be no cluster here, or None if there can."""
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        return f"needs {missing[0]} (tools/install-deps.sh slurm)"
    return netns.why_not()


@dataclass
class Cluster:
    """The hosts, and how to call Slurm's programs on one of them."""

    hosts: netns.Hosts
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's programs need in their environment."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _PATH}

    def start(self, *command: str, host: int = 0, **env: str) -> subprocess.Popen[str]:
        """Start a command on a host; its output is captured."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "CIRANDA_"))}
        return subprocess.Popen(
            [*self.hosts[host].enter, *command],
            env={**kept, **self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, host: int = 0, seconds: float = 120, **env: str) -> tuple[int, str, str]:
        """Run a command on a host: its exit code, output and errors."""
        process = self.start(*command, host=host, **env)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\n{command} did not end within {seconds} s"
        return process.returncode, out, err

    def wait_until(self, command: Sequence[str], is_so: Callable[[str], bool], seconds: float = 120) -> None:
        """Wait until the output of a command is as it should be."""
        deadline = time.monotonic() + seconds
        while not is_so((said := self.run(*command))[1]):
            assert time.monotonic() < deadline, f"{command}: {said}"
            time.sleep(0.05)


@contextmanager
def cluster(n_nodes: int = 3) -> Iterator[Cluster]:
    """Start it, and wait until all nodes are idle. REQUIRES: why_not() is None."""
    names = [f"node{index}" for index in range(n_nodes)]
    with ExitStack() as stack:
        hosts = stack.enter_context(netns.hosts(*names))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ciranda-slurm-")))
        folder.chmod(0o755)
        _start_munge(stack, folder)
        (folder / "slurm.conf").write_text(_configuration(hosts, folder))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # The plugin for PMIx makes a folder that is named by the step alone, and is each node's.
        (folder / "clients").mkdir()
        (folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={folder}/clients\n")
        made = Cluster(hosts, folder)
        _start_daemon(stack, made, 0, "slurmctld", "-D", "-i")
        for index in range(n_nodes):
            (folder / f"spool-{names[index]}").mkdir()
            # slurmd looks for control groups at its start, also where it is told to use none.
            for place in ("/sys/fs/cgroup", f"{folder}/clients"):
                made.run("mount", "-t", "tmpfs", "tmpfs", place, host=index)
            _start_daemon(stack, made, index, "slurmd", "-D")
        try:
            made.wait_until(["sinfo", "-h", "-t", "idle", "-o", "%D"], lambda out: out.strip() == str(n_nodes))
        except AssertionError as error:
            logs = "\n".join(f"{log.name}: {log.read_text()[-1000:]}" for log in sorted(folder.glob("*.log")))
            raise RuntimeError(f"the cluster did not start: {error}\n{logs}") from None
        yield made


def _configuration(hosts: netns.Hosts, folder: Path) -> str:
    first = hosts[0]
    lines = [
        "ClusterName=ciranda",
        f"SlurmctldHost={first.name}({first.address})",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        "CredType=cred/munge",
        f"StateSaveLocation={folder}",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,defer_batch",
        "ReturnToService=2",
        "KillWait=2",
        "MpiDefault=none",
        "SlurmdParameters=config_overrides",
    ]
    lines += [f"NodeName={host.name} NodeAddr={host.address} CPUs={_CPUS} State=UNKNOWN" for host in hosts.hosts]
    lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4")
    return "\n".join(lines) + "\n"


def _start_munge(stack: ExitStack, folder: Path) -> None:
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    socket = folder / "munge.socket"
    command = ["munged", "-F", "--force", f"--key-file={key}", f"--socket={socket}", f"--pid-file={folder}/munged.pid"]
    command += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
    process = _start(stack, folder / "munged-out.log", command)
    deadline = time.monotonic() + 120
    while not socket.exists():
        assert process.poll() is None, (folder / "munged-out.log").read_text()
        assert time.monotonic() < deadline, "munged makes no socket"
        time.sleep(0.02)


def _start_daemon(stack: ExitStack, cluster: Cluster, host: int, *command: str) -> None:
    log = cluster.folder / f"{command[0]}-{host}.log"
    _start(stack, log, [*cluster.hosts[host].enter, *command], cluster.env)


def _start(
    stack: ExitStack, log: Path, command: list[str], env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PATH": _PATH, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process
