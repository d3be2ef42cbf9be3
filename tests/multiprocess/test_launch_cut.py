"""Hosts that are cut off from the launcher's: the launcher says so, and their agents end their ranks by themselves."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import netns
import pytest
from launch_support import Running, close_all, python_rank, start, until

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns, pytest.mark.ssh]

_WAITS = "import signal\nprint('ready', flush=True)\nwhile True: signal.pause()\n"
_READS = "import sys\nprint('ready', flush=True)\nopen(sys.argv[1]).close()\n"


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


def start_on_two(hosts: netns.Hosts, *words: str) -> Running:
    """A rank on either of the first two hosts, and the launcher on the first. All are ready."""
    arguments = ["run", "--ssh-config", str(hosts.ssh_config), "--no-prefix", "-H", "hostA:1,hostB:1", *words]
    running = start(arguments, through=hosts[0].enter)
    assert running.read_lines(2) == [b"ready\n", b"ready\n"]
    return running


def test_a_host_that_is_cut_off_is_named_and_its_ranks_end(hosts: netns.Hosts) -> None:
    """Ranks that make no call do not notice it, and the ssh server there does not either."""
    running = start_on_two(hosts, *python_rank(_WAITS))
    with hosts.cut(1):
        exit_code, _, err = running.wait()
        until(lambda: not running.processes(), what="the end of what is cut off")
    assert exit_code == 1
    assert b"ciranda: the agent on hostB was lost, and with it ranks 1" in err


def test_a_launcher_that_is_stopped_is_waited_for(hosts: netns.Hosts) -> None:
    """As by Ctrl-Z: its host acknowledges what it is sent."""
    go = hosts.folder / "go"
    subprocess.run(["mkfifo", str(go)], check=True)
    running = start_on_two(hosts, "--env", "CIRANDA_LINK_TIMEOUT=1", *python_rank(_READS), str(go))
    running.process.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(5.0)  # an agent waits for 2
    running.process.send_signal(signal.SIGCONT)
    with go.open("w"):
        assert running.wait()[0] == 0
    go.unlink()
