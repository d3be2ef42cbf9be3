"""What `ciranda top` and Prometheus learn of a job from its ranks' counters, also of ranks that cannot answer."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda import metrics
from ciranda._basics import engine
from ciranda.launch import rates
from ciranda.launch.page import read_bytes

pytestmark = pytest.mark.multiprocess

# Rank 1 is slow, and all go on until they are ended.
PROGRAM = """
import os, signal, sys, time
import numpy as np
import ciranda

if "stays" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
ciranda.init()
for step in range(10):
    ciranda.allreduce(np.ones(4), name="begin")
open(f"pid.{ciranda.rank()}.tmp", "w").write(str(os.getpid()))
os.rename(f"pid.{ciranda.rank()}.tmp", f"pid.{ciranda.rank()}")
try:
    while True:
        if ciranda.rank() == 1:
            time.sleep(0.02)
        ciranda.allreduce(np.ones(1000), name="grad")
        ciranda.step()
except ciranda.errors.CirandaError:
    while "stays" in sys.argv:
        time.sleep(0.1)
"""
GUARD_SECONDS = 120.0  # against hanging; what is waited for comes much sooner


def until(condition: Callable[[], Any]) -> Any:
    """What it returns, once that is true."""
    deadline = time.monotonic() + GUARD_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


class Job:
    """`ciranda run` of the program with two ranks, which have begun to call."""

    def __init__(self, folder: Path, *options: str, stays: bool = False) -> None:
        (folder / "train.py").write_text(PROGRAM)
        (folder / "run").mkdir(mode=0o700)
        self.folder = folder
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run")}
        command = [*ciranda("run"), "-np", "2", *options, sys.executable, "train.py", *(["stays"] if stays else [])]
        self.process = subprocess.Popen(
            command, cwd=folder, env=self.environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pids = [int(until(lambda path=folder / f"pid.{rank}": path.exists() and path.read_text()))
                     for rank in range(2)]  # fmt: skip

    def ask(self, *command: str) -> str:
        return subprocess.run(
            ciranda(*command), env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    def top(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("top", "--json", "--interval", "0.5"))
        return found

    def end(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        if any("SIGTERM: ending all ranks" in line for line in self.process.stderr):
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


def ciranda(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ciranda.launch.cli", *arguments]


@contextmanager
def job(folder: Path, *options: str, stays: bool = False) -> Iterator[Job]:
    running = Job(folder, *options, stays=stays)
    try:
        yield running
    finally:
        running.end()


def test_the_slow_rank_is_the_one_that_is_waited_for(tmp_path: Path) -> None:
    with job(tmp_path) as running:

        def slow_one_is_blamed() -> bool:
            first, second = running.top()
            return bool(second["waited_for"] > 0.3 > first["waited_for"] and first["waited"] > 0.3)

        until(slow_one_is_blamed)
        rows = until(lambda: all((rows := running.top())[rank]["steps_per_second"] for rank in range(2)) and rows)
        assert [row["rank"] for row in rows] == [0, 1]
        assert all(row["state"] == "runs" and row["memory_bytes"] > 1 << 20 for row in rows)
        assert all(0 < row["calls_per_second"] < 100 and 0 < row["steps_per_second"] < 100 for row in rows)
        head, *lines = running.ask("top", "--once", "--interval", "0.1").splitlines()
        assert head.split()[:3] == ["rank", "host", "state"]
        assert [line.split()[0] for line in lines[:2]] == ["0", "1"]


def test_the_launcher_warns_of_a_straggler_once(tmp_path: Path) -> None:
    with job(tmp_path) as running:
        assert running.process.stderr is not None
        line = next(line for line in running.process.stderr if "straggler" in line)
        assert line.startswith("ciranda: warning: rank 1 (localhost) is a straggler: in the last ")
        assert re.search(r"; it (slept|waited for a core)", line), "a busy machine leaves it little time to sleep"


def test_live_until_q(tmp_path: Path) -> None:
    with job(tmp_path) as running:
        screen, terminal = pty.openpty()
        environment = {**running.environment, "TERM": "xterm", "COLUMNS": "160", "LINES": "30"}
        command = ciranda("top", "--interval", "0.1")
        with subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            seen = b""
            while seen.count(b"waited for") < 3:
                seen += os.read(screen, 4096)
            assert b"q: leave" in seen
            os.write(screen, b"xs")
            while b"now by waited for" not in seen:
                seen += os.read(screen, 4096)
            os.write(screen, b"q")
            _read_to_the_end(screen)
            assert process.wait() == 0
        os.close(screen)


def test_one_rank(tmp_path: Path) -> None:
    with job(tmp_path) as running:
        command = [*ciranda("top", "--json", "--interval", "0.1")]
        asked = subprocess.run(
            [*command, "--ranks", "1"], env=running.environment, check=True, capture_output=True, text=True
        )
        assert [row["rank"] for row in json.loads(asked.stdout)] == [1]
        wrong = subprocess.run(
            [*command, "--sort", "speed"], env=running.environment, check=False, capture_output=True, text=True
        )
        assert wrong.returncode == 2
        assert "--sort 'speed': must be one of rank, waited for, " in wrong.stderr


def _read_to_the_end(terminal: int) -> None:
    with suppress(OSError):  # EIO: nobody has its other end
        while os.read(terminal, 4096):
            pass


def test_a_stopped_rank_is_read(tmp_path: Path) -> None:
    with job(tmp_path, "--stall-warning-seconds", "1") as running:
        os.kill(running.pids[1], signal.SIGSTOP)

        def is_seen() -> bool:
            first, second = running.top()
            return first["waited"] > 0.9 and second["calls_per_second"] == 0 and "rank 1" in first["warning"]

        until(is_seen)
        assert running.top()[1]["state"] == "runs"
        # What the other is in is also known once it cannot say so any more.
        os.kill(running.pids[0], signal.SIGSTOP)
        (call, *_) = running.top()[0]["calls_in_flight"]
        assert (call["collective"], call["name"], call["bytes"], call["agreed"]) == ("allreduce", "grad", 8000, False)
        assert call["seconds"] > 0.5
        said = running.ask("stacks", "--short").splitlines()[0]
        assert re.fullmatch(
            r"rank 0 \(localhost\): stopped by a signal.*; in flight: allreduce 'grad', for [\d.]+ s", said
        )


def test_a_rank_that_was_killed_is_read(tmp_path: Path) -> None:
    with job(tmp_path, "--grace", "60", stays=True) as running:
        until(lambda: running.top()[1]["steps_per_second"] > 0)
        os.kill(running.pids[1], signal.SIGKILL)
        row = until(lambda: next((row for row in running.top() if row["state"] == "has ended"), None))
        assert row["rank"] == 1
        assert row["memory_bytes"] == 0
        dead = rates.by_rank(_answer(running.environment["XDG_RUNTIME_DIR"]))[1]
        assert dead["steps"] > 0
        assert dead["calls"] >= 10


def _answer(runtime: str) -> Any:
    (path,) = Path(runtime, "ciranda").glob("*.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"totals\n")
        with connection.makefile() as file:
            return json.loads(file.readline())


def free_port() -> int:
    """A port that stays free until it is used: none of those that the system gives to connections."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(10_000, max(20_000, int(given[0])))
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def _scraped(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            return str(answer.read().decode())
    except OSError:
        return ""


def test_metrics(tmp_path: Path) -> None:
    port = free_port()
    folder = tmp_path / "metrics"
    folder.mkdir()
    with job(tmp_path, "--metrics", str(port), "--metrics-dir", "metrics", "--grace", "60", stays=True) as running:
        text = until(lambda: _scraped(port))
        assert text.endswith("# EOF\n")
        for rank in range(2):
            pattern = rf'ciranda_calls_total{{job="\w+",host="localhost",rank="{rank}",collective="allreduce"}} \d+'
            assert re.search(pattern, text)
        lines = [line for line in text.splitlines() if ',rank="0"' in line]
        assert 10 < len(lines) <= 200

        def number_of(text: str, name: str) -> float:
            found = re.search(rf'^{name}{{[^}}]*rank="0"[^}}]*}} (\S+)$', text, re.MULTILINE)
            return float(found[1]) if found else -1.0

        first = number_of(text, "ciranda_steps_total")
        until(lambda: number_of(_scraped(port), "ciranda_steps_total") > first)
        (file,) = until(lambda: list(folder.glob("*.prom")))
        assert file.read_text().endswith("# EOF\n")
        os.kill(running.pids[1], signal.SIGKILL)
        until(lambda: ',rank="1"' not in (text := _scraped(port)) and ',rank="0"' in text)
    assert list(folder.iterdir()) == [], "the files go with the job"
    assert _scraped(port) == ""


def test_an_address_that_another_has(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = subprocess.run([*ciranda("run"), "-np", "1", "--metrics", address, "true"], check=False,
                              capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1
    assert f"metrics: cannot listen at {address}: Address already in use" in done.stderr


@pytest.mark.parametrize("folder", ["/proc", "/dev/null"])
def test_a_folder_that_takes_no_files(folder: str) -> None:
    """Also of root, who may write to any that takes them."""
    done = subprocess.run([*ciranda("run"), "-np", "1", "--metrics-dir", folder, "true"], check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1
    assert f"metrics: cannot write to {folder}: " in done.stderr


# Goes on until there is a file "end"; who is started in another's place waits for a file "go".
ELASTIC_PROGRAM = """
import os, time
import numpy as np
import ciranda
from ciranda._frameworks.objects import broadcast_object
from ciranda.elastic import ObjectState, run_fn

while os.environ["TORCHELASTIC_RESTART_COUNT"] != "0" and not os.path.exists("go"):
    time.sleep(0.01)
ciranda.init()

def train(state):
    open(f"pid.{ciranda.rank()}.of.{ciranda.size()}.tmp", "w").write(str(os.getpid()))
    os.rename(f"pid.{ciranda.rank()}.of.{ciranda.size()}.tmp", f"pid.{ciranda.rank()}.of.{ciranda.size()}")
    while not ciranda.allreduce(np.array([os.path.exists("end")]), op=ciranda.Max, name="end")[0]:
        ciranda.allreduce(np.ones(1000), name="grad")
        ciranda.step()
        state.commit()

run_fn(train, lambda: None)(ObjectState(broadcast_object, ciranda.rank))
"""


def _sizes(text: str) -> dict[str, str]:
    """The ranks that there are series of, and the size of their worlds."""
    return dict(re.findall(r'ciranda_world_size{.*rank="(\d+)"} (\d+)', text))


def test_the_ranks_of_an_elastic_job(tmp_path: Path) -> None:
    """A third comes; rank 0 is killed, so that the others take other numbers; another process takes its place."""
    (tmp_path / "train.py").write_text(ELASTIC_PROGRAM)
    (tmp_path / "run").mkdir(mode=0o700)
    port, folder = free_port(), tmp_path / "metrics"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    (tmp_path / "hosts").write_text("localhost:2")
    options = ["--metrics", str(port), "--metrics-dir", str(folder), "--host-discovery-script", "cat hosts"]
    options += ["--output-dir", "out"]
    command = [*ciranda("run"), "--elastic", "-np", "2", "--max-np", "3", *options, sys.executable, "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)

    def top() -> dict[int, tuple[str, bool]]:
        asked = subprocess.run(
            ciranda("top", "--json", "--interval", "0.5"), env=environment, check=True, capture_output=True, text=True
        )
        return {row["rank"]: (row["state"], row["steps_per_second"] > 0) for row in json.loads(asked.stdout)}

    def is_logged(n_ranks: int) -> bool:
        log = (tmp_path / "out" / "job.jsonl").read_text().splitlines()
        looks = [line["ranks"] for line in map(json.loads, log[:-1]) if line["kind"] == "counters"]
        sizes = [rank["size"] for rank in looks[-1] if rank["runs"] and "size" in rank] if looks else []
        return sizes == [n_ranks] * n_ranks

    try:
        until(lambda: _sizes(_scraped(port)) == {"0": "2", "1": "2"})
        until(lambda: is_logged(2))
        (tmp_path / "hosts").write_text("localhost:3")
        until(lambda: _sizes(_scraped(port)) == {"0": "3", "1": "3", "2": "3"})
        until(lambda: top() == dict.fromkeys(range(3), ("runs", True)))
        until(lambda: is_logged(3))
        until((tmp_path / "pid.0.of.3").exists)
        os.kill(int((tmp_path / "pid.0.of.3").read_text()), signal.SIGKILL)
        until(lambda: _sizes(_scraped(port)) == {"0": "2", "1": "2"})
        until(lambda: top() == dict.fromkeys(range(2), ("runs", True)))
        until(lambda: is_logged(2))
        (tmp_path / "go").touch()
        until(lambda: _sizes(_scraped(port)) == {"0": "3", "1": "3", "2": "3"})
        until(lambda: top() == dict.fromkeys(range(3), ("runs", True)))
        until(lambda: is_logged(3))
        (file,) = folder.glob("*.prom")
        until(lambda: _sizes(file.read_text()) == {"0": "3", "1": "3", "2": "3"})
        (tmp_path / "end").touch()
        assert process.wait(GUARD_SECONDS) == 0, process.stderr and process.stderr.read()
        assert not list(folder.iterdir())
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
    _report_is_on_all_worlds(tmp_path)


def _report_is_on_all_worlds(folder: Path) -> None:
    command = [*ciranda("report"), "out", "--json", "-"]
    facts = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)
    assert [world["size"] for world in facts["worlds"]] == [2, 3, 2, 3]
    assert sorted(facts["worlds"][1]["ranks"]) == [0, 1, 2]
    assert all(world["steps"] > 0 for world in facts["worlds"])
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1, 2]
    steps = sum(world["steps"] for world in facts["worlds"])
    assert max(rank["steps"] for rank in facts["ranks"]) <= steps, "the first place has missed the third world"
    assert facts["intervals"]


def _calls() -> tuple[dict[str, float], dict[str, float], dict[str, Any]]:
    before = metrics.snapshot()
    for _ in range(100):
        hvd.allreduce_(np.ones(8, np.float32), name="counted")
    hvd.broadcast(np.ones(1 << 18, np.float32), 0, name="large")
    hvd.barrier()
    hvd.step()
    return before, metrics.snapshot(), read_bytes(engine().counter_page())


def test_a_snapshot_counts_each_call_once(world: Ranks) -> None:
    for before, after, counters in world.run(_calls):
        assert after["ciranda/allreduce/calls"] - before.get("ciranda/allreduce/calls", 0) == 100
        assert after["ciranda/allreduce/bytes"] - before.get("ciranda/allreduce/bytes", 0) == 3200
        assert after["ciranda/steps"] - before["ciranda/steps"] == 1
        assert after["ciranda/waited_seconds"] <= after["ciranda/seconds"]
        assert sum(counters["paths"].values()) == after["ciranda/calls"]
        assert str(counters["rank"]) not in counters["own_waits_ns"]
        collectives = counters["collectives"]
        assert collectives["allreduce"]["sizes"]["16"]["calls"] >= 100, "of 32 bytes each"
        assert collectives["broadcast"]["sizes"][str(1 << 20)]["bytes"] >= 1 << 20
        assert all(sum(size["calls"] for size in each["sizes"].values()) == each["calls"]
                   for each in collectives.values())  # fmt: skip
        assert ("shm broadcast" in counters["algorithms"]) == (counters["size"] > 1)
        assert counters["memory_bytes_of"]["slot"] > 1 << 20


LINKED = """
import numpy as np
import ciranda

ciranda.init()
kept = ciranda.allgather(np.ones(1 << 20, np.uint8), name="kept")
for step in range(5):
    ciranda.allreduce(np.ones(1 << 18, np.float32), name="grad")
    ciranda.step()
"""


@pytest.mark.parametrize("memory", ["0", "1"])
def test_links_and_algorithms_in_a_report(tmp_path: Path, memory: str) -> None:
    (tmp_path / "train.py").write_text(LINKED)
    environment = {**os.environ, "CIRANDA_SHARED_MEMORY": memory}
    options = ["-np", "2", "--output-dir", "out", "--timeline-steps", ":", "--timeline", "all.json"]
    subprocess.run([*ciranda("run"), *options, sys.executable, "train.py"], cwd=tmp_path, env=environment, check=True)
    command = [*ciranda("report"), "out", "--json", "-"]
    facts = json.loads(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout)
    by = "shm " if memory == "1" else "direct "
    assert facts["algorithms"]
    assert all(row["algorithm"].startswith(by) for row in facts["algorithms"])
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    planned = [call["args"] for call in events if call.get("cat") == "call" and call["args"]["path"] == "plan"]
    assert planned
    assert all(args["algorithm"].startswith(by) for args in planned if args["bytes"] >= 1 << 20)
    (grads,) = (row for row in facts["recorded"]["sizes"] if row["collective"] == "allreduce")
    assert any(name.startswith(by) for name in grads["algorithms"])
    sent = {(link["rank"], link["peer"]): link["sent_bytes"] for link in facts["links"]}
    if memory == "0":
        assert sent.keys() == {(0, 1), (1, 0)}
        assert all(n_bytes > 3 << 20 for n_bytes in sent.values()), "half of each gradient, and the other's row"
    else:
        assert all(n_bytes < 1 << 20 for n_bytes in sent.values()), "the data was in memory that both share"
        assert facts["ranks"][0]["engine_memory_bytes"]["slot"] > 1 << 20


def _over_ranks() -> tuple[dict[str, float], dict[str, float]]:
    for _ in range(3 * hvd.rank()):
        hvd.step()
    if hvd.size() > 1:
        alone = hvd.add_process_set([0])
        if hvd.rank() == 0:
            hvd.scan(np.ones(1), process_set=alone)
        hvd.remove_process_set(alone)
    return metrics.snapshot("x/"), metrics.over_ranks("x/")


def test_the_numbers_over_all_ranks(world: Ranks) -> None:
    found = world.run(_over_ranks)
    own = [numbers for numbers, _ in found]
    assert all(numbers == found[0][1] for _, numbers in found)
    over = found[0][1]
    for name in ("x/steps", *(["x/scan/calls"] if len(own) > 1 else [])):  # the latter is of rank 0 alone
        values = [numbers.get(name, 0) for numbers in own]
        assert (over[f"{name}/min"], over[f"{name}/max"]) == (min(values), max(values))
        assert over[f"{name}/mean"] == pytest.approx(sum(values) / len(values))
    of_sets = [value for name, value in own[0].items() if re.fullmatch(r"x/process_sets/\d+/calls", name)]
    assert len(own) == 1 or 1 in of_sets, "of the one that rank 0 had for itself"
