"""Processes that show ranks to Prometheus follow one another, and nobody who asks meets half an answer, or none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from launch_support import until

from ciranda.launch.exporter import Exporter
from ciranda.launch.page import RankPage

pytestmark = pytest.mark.multiprocess

# Asks over HTTP, and reads the file, until it is told that it is enough. Then it says how often.
READER = """
import select, sys, urllib.request
url, path = sys.argv[1:]
n = 0
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    with urllib.request.urlopen(url) as answer:
        assert answer.read().endswith(b"# EOF\\n")
    assert open(path, "rb").read().endswith(b"# EOF\\n")
    n += 1
print(n)
"""


LABELS = {"job": "job", "host": "host"}
FILE = "ciranda-job-host.prom"
Start = Callable[..., Exporter]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an `Exporter` that writes to ``tmp_path``. None is left at the end: each has what others wait for."""
    exporters: list[Exporter] = []

    def start(pages: Mapping[int, RankPage], listener: socket.socket | None = None) -> Exporter:
        exporters.append(Exporter(pages, None, LABELS, listener, str(tmp_path)))
        return exporters[-1]

    yield start
    for exporter in exporters:
        with suppress(ChildProcessError, ProcessLookupError):  # it has ended, as it should
            os.kill(exporter.pid, signal.SIGKILL)
            os.waitpid(exporter.pid, 0)


def test_one_follows_another(start: Start, tmp_path: Path) -> None:
    pages = {place: RankPage(place) for place in range(3)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        exporters = [start(pages, listener)]
        file = tmp_path / FILE
        until(file.exists)
        port = listener.getsockname()[1]
        command = [sys.executable, "-c", READER, f"http://127.0.0.1:{port}/metrics", str(file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "begun\n"
            for turn in range(100):
                exporters[-1].give_way()
                exporters.append(start(pages, listener))
                time.sleep(turn * 0.0005)  # before it has begun to answer, and amid answers
            said, _ = reader.communicate("enough")  # by a word: the last exporter has inherited this pipe
        assert reader.returncode == 0
        assert int(said) > 10
        for exporter in exporters[:-1]:
            os.waitpid(exporter.pid, 0)
        exporters[-1].end()
        os.waitpid(exporters[-1].pid, 0)
        assert not list(tmp_path.iterdir())
    for page in pages.values():
        page.close()


class _AskedAmidAFinalizer(dict[int, RankPage]):
    """Pages that are read once before a signal comes, in the worst of moments."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def values(self) -> Any:
        _Finalized(self._number)
        return super().values()


class _Finalized:
    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)  # what its handler raises is dropped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_amid_a_finalizer_is_heard(start: Start, number: int) -> None:
    os.waitpid(start(_AskedAmidAFinalizer(number)).pid, 0)


def test_one_that_nobody_asks_does_not_compute(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        exporter = start({}, listener)
        until((tmp_path / FILE).exists)
        before = _ticks(exporter.pid)
        time.sleep(0.5)
        assert _ticks(exporter.pid) - before <= 3  # of 50


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_who_replaces_a_killed_one_clears_up_after_it(start: Start, tmp_path: Path) -> None:
    exporter = start({})
    until((tmp_path / FILE).exists)
    (tmp_path / f"{FILE}.{exporter.pid}.tmp").write_text("half of")
    os.kill(exporter.pid, signal.SIGKILL)
    os.waitpid(exporter.pid, 0)
    exporter.clean_up()
    assert not list(tmp_path.iterdir())
