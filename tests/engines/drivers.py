"""Programs on hosts that are network namespaces, as the drivers of Ray and Spark: waiting for what they do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import netns
from strangers import strangers

#: What a driver has ranks do: say who they are, or work until a file tells them to end. It imports os, socket, Path,
#: numpy and ciranda before.
RANKS = """
def numbers():
    ciranda.init()
    total = float(ciranda.allreduce(1.0, op=ciranda.Sum, name="total"))
    return (socket.gethostname(), ciranda.rank(), ciranda.local_rank(), ciranda.local_size(), ciranda.cross_rank(),
            ciranda.cross_size(), total)

def work(out):
    ciranda.init()
    ciranda.barrier()
    Path(out, f"rank-{ciranda.rank()}").write_text(f"{socket.gethostname()} {os.getpid()}")
    while not ciranda.allreduce(float(Path(out, "go").exists()), op=ciranda.Max, name="step"):
        pass
"""


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def end(process: subprocess.Popen[str], seconds: float = 600.0) -> tuple[int, str, str]:
    """Wait for a driver: its exit code, output and errors."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\nit did not end within {seconds:g} s"
    return process.returncode, out, err


def strangers_do_no_harm(
    hosts: netns.Hosts, out: Path, n_ranks: int, start: Callable[[], subprocess.Popen[str]]
) -> None:
    """Have strangers call at every host while ranks work() there, and these end well.

    What is heard of the processes of ranks may be the engine's own, which listen in them too, but no word of Ciranda's.
    """
    with ExitStack() as stack:
        who = []
        for index, host in enumerate(hosts.hosts):
            folder = out / host.name
            folder.mkdir()
            other = hosts.hosts[index - 1]
            who.append(stack.enter_context(strangers(other.enter, host.holder, host.address, folder)))
        process = start()
        try:
            wait_until(
                lambda: len([each for each in out.glob("rank-*") if each.read_text()]) == n_ranks, "the start", 600
            )
            first = (out / "rank-0").read_text().split()[0]
            who[[host.name for host in hosts.hosts].index(first)].until_called_again()
        finally:
            (out / "go").touch()
            exit_code, _, err = end(process)
        assert exit_code == 0, err
        heard = [each for of_host in who for each in of_host.report().heard]
        assert not [each for each in heard if bytes.fromhex(each).startswith(b"CIRANDA")], heard
