"""Starting an agent: as a child process here, or through the user's own ssh; and the meaning of ssh's errors."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from ciranda.launch import silence
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Slot
from ciranda.launch.link import AgentLink
from ciranda.launch.processes import BY_SSH, NO_PROCESS, why_not_started

#: What a Python says that has no ciranda package.
MISSING = "CIRANDA-MISSING"

# Runs the agent without loading the ciranda package itself (which loads the engine), and without the working directory
# on the path (where a file named like a standard module would be taken for it). The roots given are a fallback.
BOOTSTRAP = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + sys.argv[2:]\n"
    "import types, importlib.util\n"
    "spec = importlib.util.find_spec('ciranda')\n"
    f"if spec is None: sys.exit('{MISSING}')\n"
    "package = types.ModuleType('ciranda'); package.__path__ = list(spec.submodule_search_locations)\n"
    "sys.modules['ciranda'] = package\n"
    "from ciranda.launch.agent import main\n"
    "main(sys.argv[1])\n"
)
# ssh must carry it on one line, whatever the login shell of the host is.
_ONE_LINE = "exec(bytes.fromhex('" + BOOTSTRAP.encode().hex() + "'))"


@dataclass(frozen=True)
class SshOptions:
    """How to call ssh; a way to reach hosts (launch/reach.py).

    Host keys, users, jump hosts and all else are left to the user's ssh configuration.
    """

    port: int | None = None
    identity_file: str | None = None
    config_file: str | None = None
    connect_timeout_seconds: int = 10
    remote_python: str | None = None
    link_timeout_seconds: float = field(default=silence.DEFAULT_SECONDS, compare=False)

    @property
    def label(self) -> str:
        """As in launch/reach.py."""
        return "ssh"

    def is_here(self, host: str) -> bool:
        """As in launch/reach.py."""
        return is_local(host)

    def command(self, host: str, python: str, python_path: str) -> list[str]:
        """The agent on ``host``. ``python_path`` is the PYTHONPATH to use there, "" for none. No secret is in it."""
        command = [*self._ssh(), "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={self.connect_timeout_seconds}"]
        # ssh gives up when one more question than the most has had no answer.
        interval = max(1, round(self.link_timeout_seconds / 3))
        command += ["-o", f"ServerAliveInterval={interval}", "-o", "ServerAliveCountMax=2"]
        remote = agent_words(self.remote_python or python, python_path, BY_SSH)
        return [*command, "--", host, "exec " + shlex.join(remote)]

    def link(self, host: str, slots: Sequence[Slot], python: str, python_path: str) -> AgentLink:
        """As in launch/reach.py."""
        return AgentLink(host, slots, self.command(host, python, python_path))

    def resolved_name(self, host: str) -> tuple[str, bool]:
        """The name or address that ssh would connect to for ``host``, and whether it goes there without a jump host.

        Raises:
            LaunchError: ssh cannot be started.
        """
        command = [*self._ssh(), "-G", "--", host]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        except OSError as error:
            raise LaunchError(f"cannot start {command[0]}: {why_not_started(error)}") from None
        settings = dict(line.partition(" ")[::2] for line in os.fsdecode(done.stdout).splitlines())
        jumps = [settings.get(key, "none") for key in ("proxyjump", "proxycommand")]
        return settings.get("hostname", host.rpartition("@")[2]), all(jump == "none" for jump in jumps)

    def explain(self, host: str, exit_code: int, stderr: str) -> str:
        """One clear error for an agent on ``host`` that did not start: meaning, remedy, and the original message."""
        words = stderr.strip()
        meaning = next((meaning for sign, meaning in _COMPLAINTS if sign in words), "the agent did not start there")
        words = words.replace(MISSING, "").replace(NO_PROCESS, "").strip()
        said = f"\n  it said: {words}" if words else ""
        return f"cannot start ranks on {host}: {meaning} (exit code {exit_code}){said}"

    def _ssh(self) -> list[str]:
        program = shutil.which("ssh")
        if program is None:
            raise LaunchError("no ssh program on the PATH: install an OpenSSH client to start ranks on other hosts")
        command = [program]
        if self.config_file is not None:
            command += ["-F", self.config_file]
        if self.port is not None:
            command += ["-p", str(self.port)]
        if self.identity_file is not None:
            command += ["-i", self.identity_file]
        return command


def package_root() -> str:
    """The folder that holds the ciranda package in use here."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def local_command(python: str) -> list[str]:
    """The agent as a child of this process."""
    return [python, "-c", BOOTSTRAP, str(os.getpid()), package_root()]


def agent_words(python: str, python_path: str, parent: str = "0") -> list[str]:
    """The command of an agent that is no child of the launcher. ``python_path`` is as in SshOptions.command().

    ``parent``: who starts it, BY_SSH or any other.
    """
    environment = ["env", f"PYTHONPATH={python_path}"] if python_path else []
    return [*environment, python, "-c", _ONE_LINE, parent, package_root()]


def is_local(host: str) -> bool:
    """Whether ``host`` is this machine: its name, or an address of one of its interfaces. Never for user@host."""
    if "@" in host:
        return False
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_own_address(family, address) for family, _, _, _, address in found)


def _is_own_address(family: int, address: object) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)  # type: ignore[arg-type]
        except OSError:
            return False
    return True


# ssh's message -> its meaning and the remedy. The first that matches counts.
_COMPLAINTS = (
    (MISSING, "no ciranda package in Python there: install it, or name another Python with --remote-python"),
    (NO_PROCESS, why_not_started(BlockingIOError(errno.EAGAIN, ""))),
    ("fork failed: Resource temporarily unavailable", why_not_started(BlockingIOError(errno.EAGAIN, ""))),
    ("Could not resolve hostname", "the host is unknown: check its name, or give it an address in ~/.ssh/config"),
    ("Host key verification failed", "its host key is not trusted: connect once by hand with ssh and accept the key"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key has changed: check why, then update ~/.ssh/known_hosts"),
    ("Permission denied", "ssh may not log in without a password: set up a key (ssh-copy-id), or choose one with -i"),
    ("Too many authentication failures", "ssh may not log in: choose the right key with -i"),
    ("Connection refused", "no ssh server listens there: start sshd on that host, or give its port with --ssh-port"),
    ("Connection timed out", "the host does not answer: check that it is up and that no firewall blocks ssh"),
    ("No route to host", "there is no network route to it: check the network"),
    ("Network is unreachable", "there is no network route to it: check the network"),
    ("No such file or directory", "that Python is not there: give its path on that host with --remote-python"),
    ("not found", "that Python is not there: give its path on that host with --remote-python"),
)  # fmt: skip
