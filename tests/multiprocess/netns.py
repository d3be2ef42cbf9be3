"""Hosts that are network namespaces: each with its own address, its own /dev/shm, its own host name and an ssh server.

They hang on a bridge in a namespace of its own, so that nothing of this machine's network is touched. Needs root, and
sshd for ssh. Everything goes when the context ends: processes, namespaces, keys.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SUBNET = "10.91.0"
SSH_PORT = 2222
SHM_BYTES = "256m"


def why_not() -> str | None:
    """Why hosts cannot be made here, or None if they can."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    for tool in ("ip", "unshare", "nsenter", "ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            return f"needs the program {tool}"
    if _sshd() is None:
        return "needs an OpenSSH server (Debian: openssh-server)"
    probe = f"cir-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"this kernel or container refuses network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return None


def _sshd() -> str | None:
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@dataclass
class Host:
    """One of the hosts. ``enter`` in front of a command runs it there."""

    name: str
    address: str
    holder: int

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.holder), "--net", "--mount", "--uts", "--wdns=" + os.getcwd()]


@dataclass
class Hosts:
    """Several hosts, and how to reach them: ``ssh_config`` knows them by name and by address."""

    hosts: list[Host]
    ssh_config: Path
    folder: Path
    switch: str

    @contextmanager
    def cut(self, index: int) -> Iterator[None]:
        """While in it, nothing passes between a host and all others. Nobody is told."""
        _ip(self.switch, "link", "set", f"port{index}", "nomaster")
        try:
            yield
        finally:
            _ip(self.switch, "link", "set", f"port{index}", "master", "br0")

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]


@contextmanager
def hosts(*names: str) -> Iterator[Hosts]:
    """Make hosts, at 10.91.0.11, 10.91.0.12 ... in order, wait until their ssh servers listen, and clean up after.

    REQUIRES: why_not() is None.
    """
    prefix = f"cir{os.getpid()}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ciranda-hosts-")))
        _make_keys(folder)
        switch = f"{prefix}-switch"
        _add_namespace(stack, switch)
        _ip(switch, "link", "add", "br0", "type", "bridge")
        _ip(switch, "link", "set", "br0", "up")
        made = []
        for index, name in enumerate(names):
            namespace = f"{prefix}-{name}"
            address = f"{SUBNET}.{11 + index}"
            _add_namespace(stack, namespace)
            _connect(namespace, switch, f"port{index}", address)
            made.append(Host(name, address, _start_host(stack, namespace, name, folder)))
        config = _write_ssh_config(folder, made)
        for host in made:
            _wait_for_ssh(folder / f"{host.name}.log")
        yield Hosts(made, config, folder, switch)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")


def _ip(namespace: str, *words: str) -> None:
    _run("ip", "-n", namespace, *words)


def _add_namespace(stack: ExitStack, name: str) -> None:
    _run("ip", "netns", "add", name)
    stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
    _ip(name, "link", "set", "lo", "up")


def _connect(namespace: str, switch: str, port: str, address: str) -> None:
    _ip(switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _ip(switch, "link", "set", port, "master", "br0", "up")
    _ip(namespace, "address", "add", f"{address}/24", "dev", "eth0")
    _ip(namespace, "link", "set", "eth0", "up")


def _make_keys(folder: Path) -> None:
    for key in ("host_key", "user_key"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    (folder / "authorized_keys").write_bytes((folder / "user_key.pub").read_bytes())
    (folder / "sshd_config").write_text(
        f"Port {SSH_PORT}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "UsePAM no\nStrictModes no\nPidFile none\nUseDNS no\nMaxStartups 100\n"
    )


def _start_host(stack: ExitStack, namespace: str, name: str, folder: Path) -> int:
    """The host's first process: its ssh server, in mount and name spaces of its own. Its process id."""
    os.makedirs("/run/sshd", exist_ok=True)  # where sshd insists on changing its root to
    sshd = _sshd()
    script = (
        f"mount -t tmpfs -o size={SHM_BYTES},mode=1777 tmpfs /dev/shm && hostname {name} && "
        f"exec {sshd} -D -e -f {folder}/sshd_config"
    )
    command = ["ip", "netns", "exec", namespace, "unshare", "--mount", "--uts", "--propagation", "private"]
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            [*command, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    stack.callback(_end_host, process, namespace)
    return process.pid


def _end_host(process: subprocess.Popen[bytes], namespace: str) -> None:
    """Kill everything that lives in the host's network namespace."""
    for _ in range(100):
        listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
        pids = [int(word) for word in listed.stdout.split()]
        if not pids:
            break
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
    process.wait()


def _write_ssh_config(folder: Path, made: Sequence[Host]) -> Path:
    known = (folder / "host_key.pub").read_text().split()[:2]
    lines = []
    entries = []
    for host in made:
        entries.append(f"[{host.address}]:{SSH_PORT} {' '.join(known)}\n")
        lines.append(f"Host {host.name} {host.address}\n  HostName {host.address}\n")
    (folder / "known_hosts").write_text("".join(entries))
    config = folder / "ssh_config"
    config.write_text(
        "".join(lines)
        + f"Host *\n  Port {SSH_PORT}\n  User root\n  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
    )
    return config


def _wait_for_ssh(log: Path, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while b"Server listening" not in log.read_bytes():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the ssh server did not start: {log.read_text(errors='replace')}")
        time.sleep(0.01)
