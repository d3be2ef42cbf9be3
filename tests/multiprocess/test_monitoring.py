"""Prometheus and node_exporter read a job, and answer what the dashboard and the alerts ask them.

They are Debian's: `tools/install-deps.sh monitoring`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import netns
import pytest
from test_counters import free_port, job, until

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
# Of a job in which all goes well, there is none.
WITHOUT_SERIES = {'sum(ciranda_failed_calls_total{job="$job"})'}

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(
        not all(map(shutil.which, ("prometheus", "promtool", "prometheus-node-exporter"))),
        reason="no Prometheus here: tools/install-deps.sh monitoring installs it",
    ),
]


@contextmanager
def server(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def read(address: str) -> str:
    """What is there; nothing if nobody answers yet."""
    try:
        with urllib.request.urlopen(f"http://{address}", timeout=10) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.HTTPError):
        return ""


class Prometheus:
    """A server that scrapes a job's hosts each second, with the project's own rules.

    ``enter`` in front of a command runs it where the server is.
    """

    def __init__(self, folder: Path, *targets: str, enter: Sequence[str] = ()) -> None:
        self._enter = enter
        self._address = f"127.0.0.1:{free_port()}"
        config = (MONITORING / "prometheus.yml").read_text()
        config = config.replace('"127.0.0.1:9464"', ", ".join(f'"{target}"' for target in targets)).replace("5s", "1s")
        self.config = folder / "prometheus.yml"
        self.config.write_text(config.replace("rules.yml", str(MONITORING / "rules.yml")))
        self.command = [
            *enter, "prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address={self._address}", "--log.level=error",
        ]  # fmt: skip

    def ask(self, query: str) -> list[dict[str, Any]]:
        answer = self._get(f"query?query={urllib.parse.quote(query)}")
        assert answer.get("status", "success") == "success", answer
        found: list[dict[str, Any]] = answer.get("data", {}).get("result", [])
        return found

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("targets").get("data", {}).get("activeTargets", [])
        return found

    def _get(self, path: str) -> dict[str, Any]:
        url = f"{self._address}/api/v1/{path}"
        if self._enter:
            fetch = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
            command = [*self._enter, sys.executable, "-S", "-c", fetch, f"http://{url}"]
            text = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        else:
            text = read(url)
        answer: dict[str, Any] = json.loads(text or "{}")
        return answer


def queries() -> Iterator[tuple[str, str]]:
    """The title and the query of each curve of the dashboard."""
    board = json.loads((MONITORING / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=MONITORING, check=True, capture_output=True)
    subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=MONITORING, check=True, capture_output=True)
    subprocess.run(["promtool", "test", "rules", "rules_test.yml"], cwd=MONITORING, check=True, capture_output=True)


def test_prometheus_answers_what_the_dashboard_asks(tmp_path: Path) -> None:
    port = free_port()
    prometheus = Prometheus(tmp_path, f"127.0.0.1:{port}")
    with (
        job(tmp_path, "--metrics", str(port), "--grace", "60", stays=True) as running,
        server(*prometheus.command),
    ):
        (identifier,) = {each["metric"]["job"] for each in until(lambda: prometheus.ask("ciranda_up"))}
        assert identifier in running.ask("jobs")
        for title, query in queries():
            asked = query.replace("$job", identifier).replace("$__rate_interval", "1m")
            if query in WITHOUT_SERIES:
                prometheus.ask(asked)
            else:
                assert until(lambda asked=asked: prometheus.ask(asked)), f"{title}: {asked}"

        def slow_one_stands_out() -> bool:
            shares = {
                each["metric"]["rank"]: float(each["value"][1]) for each in prometheus.ask("ciranda:waited_for:ratio")
            }
            return shares.get("1", 0.0) > 0.3 > shares.get("0", 0.0)

        until(slow_one_stands_out)
        assert until(lambda: prometheus.ask('ALERTS{alertname="CirandaStraggler",rank="1"}'))
        (target,) = prometheus.targets()
        assert target["lastError"] == ""

        os.kill(running.pids[1], signal.SIGKILL)
        until(lambda: [each["metric"]["rank"] for each in prometheus.ask("ciranda_up")] == ["0"])
        assert until(lambda: prometheus.ask(f'ALERTS{{alertname="CirandaRankLost",job="{identifier}"}}'))


RANK = """
import os, signal, sys, time
import numpy as np
import ciranda

signal.signal(signal.SIGTERM, signal.SIG_IGN)
ciranda.init()
path = f"{sys.argv[1]}/pid.{ciranda.rank()}"
with open(path + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(path + ".new", path)
try:
    while True:
        ciranda.allreduce(np.ones(100), name="grad")
        ciranda.step()
        time.sleep(0.05)
except ciranda.errors.RanksLostError:
    time.sleep(600)
"""


@pytest.mark.netns
@pytest.mark.ssh
def test_prometheus_scrapes_three_hosts(hosts: netns.Hosts, tmp_path: Path) -> None:
    targets = [f"{host.address}:9464" for host in hosts.hosts]
    prometheus = Prometheus(tmp_path, *targets, enter=hosts[0].enter)
    command = [
        *hosts[0].enter, sys.executable, "-m", "ciranda.launch.cli", "run", "--ssh-config", str(hosts.ssh_config), "-H",
        "hostA:1,hostB:1,hostC:1", "--grace", "600", "--metrics", "0.0.0.0:9464", sys.executable, "-c", RANK,
        str(tmp_path),
    ]  # fmt: skip

    def ranks_up() -> dict[str, str]:
        return {each["metric"]["host"]: each["metric"]["rank"] for each in prometheus.ask("ciranda_up == 1")}

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as launcher, server(*prometheus.command):
        try:
            until(lambda: ranks_up() == {"hostA": "0", "hostB": "1", "hostC": "2"})
            until(lambda: len(prometheus.ask("rate(ciranda_steps_total[10s]) > 1")) == 3)
            assert [target["lastError"] for target in prometheus.targets()] == ["", "", ""]
            os.kill(int((tmp_path / "pid.1").read_text()), signal.SIGKILL)
            until(lambda: ranks_up() == {"hostA": "0", "hostC": "2"})
        finally:
            launcher.send_signal(signal.SIGTERM)
            assert launcher.stderr is not None
            if any("SIGTERM: ending all ranks" in line for line in launcher.stderr):
                launcher.send_signal(signal.SIGTERM)
            launcher.communicate()


def test_node_exporter_reads_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    address = f"127.0.0.1:{free_port()}"
    exporter = (
        "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
        f"--collector.textfile.directory={folder}", f"--web.listen-address={address}",
    )  # fmt: skip
    with job(tmp_path, "--metrics-dir", "metrics"), server(*exporter):
        for rank in range(2):
            series = re.compile(rf'^ciranda_calls_total{{collective="allreduce",.*rank="{rank}"}} \d', re.MULTILINE)
            until(lambda series=series: series.search(read(f"{address}/metrics")))
        assert "node_textfile_scrape_error 0" in read(f"{address}/metrics")
