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
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """A server that scrapes a job each second, with the project's own rules."""

    def __init__(self, folder: Path, metrics_port: int) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        config = (MONITORING / "prometheus.yml").read_text()
        config = config.replace("9464", str(metrics_port)).replace("5s", "1s")
        self.config = folder / "prometheus.yml"
        self.config.write_text(config.replace("rules.yml", str(MONITORING / "rules.yml")))
        self.command = [
            "prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address={self._address}", "--log.level=error",
        ]  # fmt: skip

    def ask(self, query: str) -> list[dict[str, Any]]:
        answer = json.loads(read(f"{self._address}/api/v1/query?query={urllib.parse.quote(query)}") or "{}")
        assert answer.get("status", "success") == "success", answer
        found: list[dict[str, Any]] = answer.get("data", {}).get("result", [])
        return found

    def targets(self) -> list[dict[str, Any]]:
        answer = json.loads(read(f"{self._address}/api/v1/targets") or "{}")
        found: list[dict[str, Any]] = answer.get("data", {}).get("activeTargets", [])
        return found


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
    prometheus = Prometheus(tmp_path, port)
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
