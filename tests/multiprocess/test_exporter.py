"""Processes that show ranks to Prometheus follow one another, and nobody who asks meets half an answer, or none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def test_one_follows_another(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    labels = {"job": "job", "host": "host"}
    pages = {place: RankPage(place) for place in range(3)}

    def start() -> Exporter:
        return Exporter(pages, None, labels, listener, str(tmp_path))

    exporters = [start()]
    file = tmp_path / "ciranda-job-host.prom"
    try:
        while not file.exists():
            time.sleep(0.001)
        port = listener.getsockname()[1]
        command = [sys.executable, "-c", READER, f"http://127.0.0.1:{port}/metrics", str(file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "begun\n"
            for turn in range(100):
                exporters[-1].give_way()
                exporters.append(start())
                time.sleep(turn * 0.0005)  # before it has begun to answer, and amid answers
            said, _ = reader.communicate("enough")  # by a word: the last exporter has inherited this pipe
        assert reader.returncode == 0
        assert int(said) > 10
        for exporter in exporters[:-1]:
            os.waitpid(exporter.pid, 0)
        exporters[-1].end()
        os.waitpid(exporters.pop().pid, 0)
        exporters.clear()
        assert not list(tmp_path.iterdir())
    finally:
        for exporter in exporters:
            os.kill(exporter.pid, signal.SIGKILL)
            os.waitpid(exporter.pid, 0)
        listener.close()
        for page in pages.values():
            page.close()


def test_who_replaces_a_killed_one_clears_up_after_it(tmp_path: Path) -> None:
    exporter = Exporter({}, None, {"job": "job", "host": "host"}, None, str(tmp_path))
    while not list(tmp_path.glob("*.prom")):
        time.sleep(0.001)
    (tmp_path / f"ciranda-job-host.prom.{exporter.pid}.tmp").write_text("half of")
    os.kill(exporter.pid, signal.SIGKILL)
    os.waitpid(exporter.pid, 0)
    exporter.clean_up()
    assert not list(tmp_path.iterdir())
