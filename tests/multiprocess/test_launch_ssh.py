"""`ciranda run -H hostA:2,hostB:2` over real ssh, between network namespaces that act as hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import netns
import pytest
from launch_support import GUARD_SECONDS, Running, children, close_all, command_of, python_rank, start, until

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns, pytest.mark.ssh]

STUBBORN = (
    "import os, signal\n"
    "for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(n, signal.SIG_IGN)\n"
    "print('ready', os.getpid(), flush=True)\n"
    "while True: signal.pause()\n"
)


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


def start_on(hosts: netns.Hosts, arguments: list[str | bytes], index: int = 0, **options: object) -> Running:
    """The launcher, on one of the hosts."""
    words = ["run", "--ssh-config", str(hosts.ssh_config), *arguments]
    return start(words, through=hosts[index].enter, **options)  # type: ignore[arg-type]


def run_on(
    hosts: netns.Hosts, arguments: list[str | bytes], index: int = 0, **options: object
) -> tuple[int, bytes, bytes]:
    running = start_on(hosts, arguments, index, **options)
    result = running.wait()
    running.assert_nothing_left()
    return result


@pytest.mark.parametrize("by", ["name", "address"])
def test_ranks_run_on_their_hosts(hosts: netns.Hosts, by: str) -> None:
    first, second = (getattr(hosts[i], by) for i in (0, 1))
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOST", "STORE"]
    code = f"import os; print(os.uname().nodename, *(os.environ['CIRANDA_' + n] for n in {names}))"
    exit_code, out, err = run_on(hosts, ["-np", "4", "-H", f"{first}:2,{second}:2", *python_rank(code)])
    assert (exit_code, err) == (0, b"")
    store = "10.91.0.11:4242"
    assert sorted(out.decode().splitlines()) == [
        f"[0]<stdout>:hostA 0 4 0 2 0 2 {first} {store}",
        f"[1]<stdout>:hostA 1 4 1 2 0 2 {first} {store}",
        f"[2]<stdout>:hostB 2 4 0 2 1 2 {second} {store}",
        f"[3]<stdout>:hostB 3 4 1 2 1 2 {second} {store}",
    ]


def test_the_launchers_own_host_is_not_reached_by_ssh(hosts: netns.Hosts) -> None:
    code = "import os; print(os.getpid(), 'SSH_CONNECTION' in os.environ, flush=True); open(os.environ['GO']).close()"
    fifo = hosts.folder / "go"
    os.mkfifo(fifo)
    running = start_on(hosts, ["-H", "hostA:1,hostB:1", "--no-prefix", *python_rank(code)], env={"GO": str(fifo)})
    running.read_lines(2)
    agents = [command_of(pid) for pid in running.children_of_launcher()]
    assert sum(command.startswith("/usr/bin/ssh ") for command in agents) == 1
    assert not any("hostA" in command for command in agents)
    with fifo.open("w"):  # until both have opened it, of which one may come late
        assert running.wait()[0] == 0
    fifo.unlink()


def test_the_secret_is_on_no_command_line(hosts: netns.Hosts) -> None:
    code = (
        "import glob, os\n"
        "text = open(os.environ['CIRANDA_SECRET_FILE'], 'rb').read()\n"
        "assert len(text) == 64\n"
        "def read(path):\n"
        "  try: return open(path, 'rb').read()\n"
        "  except OSError: return b''\n"
        "print(any(text in read(f) for f in glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ')))\n"
    )
    assert run_on(hosts, ["-H", "hostB:2", "--no-prefix", *python_rank(code)])[1] == b"False\nFalse\n"


def test_strange_arguments_and_environment_survive_ssh(hosts: netns.Hosts) -> None:
    strange = [
        b"a b",
        b'it\'s "q" $HOME `x` \\ ! ; rm',
        b"line\nbreak",
        "naïve 💃".encode(),
        b"\xff\xfe",
        b"",
        b"*",
        b"~",
    ]
    code = "import os, sys\nprint([os.fsencode(a) for a in sys.argv[1:]], os.environb[b'STRANGE'])"
    env = {b"STRANGE": b"\xff 'x'\n$Y"}
    exit_code, out, err = run_on(hosts, ["-H", "hostB:1", "--no-prefix", *python_rank(code), *strange], env=env)
    assert (exit_code, err) == (0, b"")
    assert out.decode() == f"{strange!r} {env[b'STRANGE']!r}\n"


def test_a_hosts_own_variables_stay_its_own(hosts: netns.Hosts) -> None:
    code = "import os; print(os.environ.get('DISPLAY'), os.environ['SSH_CONNECTION'].split()[2], os.environ['GIVEN'])"
    env = {"DISPLAY": ":7", "SSH_CONNECTION": "wrong", "GIVEN": "yes"}
    assert run_on(hosts, ["-H", "hostB:1", "--no-prefix", *python_rank(code)], env=env)[1] == b"None 10.91.0.12 yes\n"


def test_the_failing_host_is_named_and_the_rest_ended(hosts: netns.Hosts) -> None:
    code = (
        "import os, signal\n"
        "if os.environ['CIRANDA_RANK'] == '3': raise ValueError('over there')\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: signal.pause()\n"
    )
    exit_code, _, err = run_on(hosts, ["-H", "hostA:2,hostB:2", *python_rank(code)])
    lines = err.decode().splitlines()
    assert exit_code == 1
    assert any(line.startswith("ciranda: rank 3 on hostB failed first: exit code 1") for line in lines)
    assert lines[-1] == "ValueError: over there"


def test_ctrl_c_ends_the_ranks_of_every_host(hosts: netns.Hosts) -> None:
    running = start_on(hosts, ["-H", "hostA:2,hostB:2,hostC:1", *python_rank(STUBBORN)])
    running.read_lines(5)
    running.process.send_signal(signal.SIGINT)
    running.assert_nothing_left()
    assert running.wait()[0] == 130


def test_ctrl_c_on_a_terminal_lets_ranks_clean_up(hosts: netns.Hosts) -> None:
    """There the signal comes to the whole process group of the launcher; ssh must not die of it."""
    code = (
        "import signal, sys\n"
        "def stop(*_): print('cleaned up', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    running = start_on(hosts, ["-H", "hostA:1,hostB:1", "--grace", "60", *python_rank(code)], start_new_session=True)
    running.read_lines(2)
    os.killpg(running.process.pid, signal.SIGINT)
    exit_code, out, _ = running.wait()
    assert exit_code == 130
    assert sorted(out.splitlines()) == [b"[0]<stdout>:cleaned up", b"[1]<stdout>:cleaned up"]


@pytest.mark.parametrize("whom", ["launcher", "ssh", "agent", "guardian"])
def test_nothing_outlives_a_death(hosts: netns.Hosts, whom: str) -> None:
    running = start_on(hosts, ["-H", "hostB:2", "--grace", "0.2", *python_rank(STUBBORN)])
    ranks = [int(line.split()[-1]) for line in running.read_lines(2)]
    (ssh,) = running.children_of_launcher()
    worker = parent_of(ranks[0])
    victim = {"launcher": running.process.pid, "ssh": ssh, "agent": worker, "guardian": parent_of(worker)}[whom]
    os.kill(victim, signal.SIGKILL)
    running.assert_nothing_left()
    until(lambda: not any(alive(rank) for rank in ranks), what="the end of the remote ranks")
    exit_code, _, err = running.wait()
    assert exit_code != 0
    if whom != "launcher":
        assert b"the agent on hostB" in err


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-H", "nosuchhost.invalid:1"], b"nosuchhost.invalid"),
        (["-H", "hostB:1", "--ssh-port", "2223"], b"no ssh server listens there"),
        (
            ["-H", "hostB:1", "--remote-python", "/nonexistent/python"],
            b"give its path on that host with --remote-python",
        ),
        (["-H", "hostB:1", "--remote-python", "/usr/bin/false"], b"cannot start ranks on hostB"),
        (["-H", "hostA:1,10.91.0.99:1", "--start-timeout", "60"], b"10.91.0.99"),
    ],
)
def test_a_host_that_cannot_be_used_is_named_with_advice(
    hosts: netns.Hosts, arguments: list[str | bytes], complaint: bytes
) -> None:
    exit_code, out, err = run_on(hosts, [*arguments, "echo", "started"])
    assert exit_code != 0
    assert complaint in err
    assert b"Traceback" not in err
    assert out == b""  # no rank runs anywhere unless every host can


def test_a_key_that_is_not_accepted_is_said(hosts: netns.Hosts) -> None:
    config = hosts.folder / "no_key"
    config.write_text(hosts.ssh_config.read_text().replace("user_key", "host_key"))
    words: list[str | bytes] = ["run", "--ssh-config", str(config), "-H", "hostB:1", "true"]
    exit_code, _, err = start(words, through=hosts[0].enter).wait()
    assert exit_code == 1
    assert b"ssh may not log in without a password" in err
    assert b"Permission denied" in err  # ssh's own words


def test_a_host_without_ciranda_is_said(hosts: netns.Hosts, tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"  # a Python that finds neither our packages nor our path
    bare.write_text(f'#!/bin/sh\nshift; code=$1; shift 2\nunset PYTHONPATH\nexec {sys.executable} -S -c "$code" 0\n')
    bare.chmod(0o755)
    exit_code, _, err = run_on(hosts, ["-H", "hostB:1", "--remote-python", str(bare), "true"])
    assert exit_code == 1
    assert b"no ciranda package" in err


def test_a_chatty_login_is_no_obstacle(hosts: netns.Hosts, tmp_path: Path) -> None:
    chatty = tmp_path / "chatty-python"
    chatty.write_text(f'#!/bin/sh\necho "Welcome to this host"\nexec {sys.executable} "$@"\n')
    chatty.chmod(0o755)
    result = run_on(hosts, ["-H", "hostB:1", "--no-prefix", "--remote-python", str(chatty), "echo", "hi"])
    assert result == (0, b"hi\n", b"")


def test_a_missing_working_directory_is_said_and_survived(hosts: netns.Hosts, tmp_path: Path) -> None:
    running = start_on(hosts, ["-H", "hostB:1", "--no-prefix", "pwd"], cwd=str(tmp_path))
    assert running.wait()[0] == 0  # it is there: the hosts share this file system
    hidden = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    script = f'mount -t tmpfs tmpfs {tmp_path} && mkdir {tmp_path}/only-here && cd {tmp_path}/only-here && exec "$@"'
    running = start(
        ["run", "--ssh-config", str(hosts.ssh_config), "-H", "hostB:1", "--no-prefix", "pwd"],
        through=[*hosts[0].enter, *hidden, script, "sh"],
    )
    exit_code, out, err = running.wait()
    assert exit_code == 0
    assert b"only-here" in err
    assert b"No such file or directory" in err
    assert out == os.path.expanduser("~").encode() + b"\n"


def test_each_host_has_its_own_shared_memory(hosts: netns.Hosts) -> None:
    code = (
        "import os\n"
        "path = '/dev/shm/mark-' + os.environ['CIRANDA_HOST']\n"
        "open(path, 'w').close(); print(sorted(os.listdir('/dev/shm'))); os.unlink(path)\n"
    )
    exit_code, out, _ = run_on(hosts, ["-H", "hostA:1,hostB:1", *python_rank(code)])
    assert exit_code == 0
    assert sorted(out.splitlines()) == [b"[0]<stdout>:['mark-hostA']", b"[1]<stdout>:['mark-hostB']"]


def test_the_interface_can_be_chosen(hosts: netns.Hosts) -> None:
    code = "import os; print(os.environ['CIRANDA_STORE'], os.environ['CIRANDA_INTERFACE'])"
    arguments: list[str | bytes] = ["-H", "hostB:1", "--no-prefix", "--network-interface", "eth0", *python_rank(code)]
    assert run_on(hosts, arguments, index=2) == (0, b"10.91.0.13:4242 eth0\n", b"")


def test_no_child_is_left_on_the_launchers_side(hosts: netns.Hosts) -> None:
    assert not [pid for pid in children(os.getpid()) if "ssh " in command_of(pid) and "sshd" not in command_of(pid)]


_RUNS_A_FUNCTION = """
import os, sys
from ciranda.launch.api import RunOptions, run
from ciranda.launch.ssh import SshOptions

class IdleStore:
    port = 4242
    def __init__(self, *arguments): pass
    def lose(self, rank, why): pass
    def close(self): pass

options = RunOptions(store_factory=IdleStore, ssh=SshOptions(config_file=sys.argv[1]))
data = bytes(range(256)) * (20 << 12)
assert run(lambda data: data[::-1], (data,), hosts="hostA:1,hostB:1", options=options) == [data[::-1]] * 2
print(sum(os.times()[:4]))
"""


def test_large_results_of_other_hosts_cost_no_more_than_their_bytes(hosts: netns.Hosts) -> None:
    """20 MB there, and 20 back: a second of a core. What copies what has come with each piece computes for ten."""
    command = [*hosts[0].enter, sys.executable, "-c", _RUNS_A_FUNCTION, str(hosts.ssh_config)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=GUARD_SECONDS)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 6
