"""What the engine says at each level, in which form, and where."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

PROGRAM = """
import numpy as np
import ciranda as hvd
from ciranda.process_sets import ProcessSet, add_process_set, remove_process_set

hvd.init()
found = add_process_set(ProcessSet([1]))
for _ in range(3):
    hvd.allreduce(np.ones(2, np.float32), name='we"ird\\n')
    hvd.step()
remove_process_set(found)
hvd.shutdown()
"""


def run(*options: str, program: str = PROGRAM, ranks: int = 2, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", str(ranks), *options]
    command += [sys.executable, "-c", program]
    env = {**os.environ, **env}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=100)


def of_rank(rank: int, done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of its engine, without what stands before the text."""
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix(f"[{rank}]<stderr>:ciranda: ") for line in done.stderr.splitlines()]
    return [line.replace(f" [rank {rank}]", "") for line in lines if line.startswith(("trace:", "debug:", "info:"))]


def test_info_says_what_the_world_is() -> None:
    done = run("--log-level", "info")
    first, *others = of_rank(0, done)
    pattern = (
        r"info: joined world 0 of job [0-9a-f]+ in \d+\.\d{3} s: rank 0 of 2, local rank 0 of 2, pid \d+, on 1 host, "
        r"at [0-9.:\[\]]+; shared memory with rank 1"
    )
    assert re.fullmatch(pattern, first)
    assert re.fullmatch(r"info: host localhost: ranks 0, 1, \d+ cores?, the first at [0-9.:\[\]]+", others[0])
    assert re.fullmatch(r"info: an allreduce goes by a direct round in shared memory up to .+, by shm .+", others[1])
    assert others[2:4] == ["info: process set 1 was added: rank 1", "info: process set 1 was removed"]
    assert re.fullmatch(r"info: left the world after \d+\.\d{3} s: \d+ calls, .+, 3 steps", others[4])
    assert len(others) == 5
    assert [line.split()[1] for line in of_rank(1, done)] == ["joined", "process", "process", "left"]


def test_nothing_is_said_below_the_level() -> None:
    assert run().stderr == ""


def test_debug_says_what_changes_and_trace_says_each_call() -> None:
    done = run("--env", "CIRANDA_LOG_LEVEL=trace")
    lines = of_rank(0, done)
    assert any(line.startswith("debug: the cost model begins with ") for line in lines)
    # The first to leave may end before it learns that the other has left.
    left = r"debug: rank [01] \(host localhost, pid \d+\) has left the world"
    assert any(re.fullmatch(left, line) for line in [*lines, *of_rank(1, done)])
    assert "trace: allreduce 'we\"ird" in lines, "a line end is kept"
    said = of_rank(0, run("--log-level", "debug"))
    assert any(line.startswith("debug: ") for line in said)
    assert [line for line in said if line.startswith("trace: ")] == []


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_of_json(tmp_path: Path) -> None:
    begin = datetime.now(timezone.utc) - timedelta(seconds=1)
    env = {"TZ": "Asia/Tokyo"}
    done = run("--log-level", "trace", "--log-format", "json", "--log-file", str(tmp_path / "log.%h.%r"), **env)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["log.localhost.0", "log.localhost.1"]
    for rank in range(2):
        found = objects(tmp_path / f"log.localhost.{rank}")
        assert {tuple(each) for each in found} == {("time", "level", "rank", "host", "step", "message")}
        assert {(each["rank"], each["host"]) for each in found} == {(rank, "localhost")}
        times = [datetime.fromisoformat(each["time"].replace("Z", "+00:00")) for each in found]
        assert all(begin < time < datetime.now(timezone.utc) for time in times)
        calls = [each for each in found if each["message"].startswith("allreduce 'we\"ird\n': 8 bytes of float32 by ")]
        assert [(each["level"], each["step"]) for each in calls] == [("trace", 0), ("trace", 1), ("trace", 2)]
        assert found[-1]["message"].endswith(", 3 steps")
        assert found[-1]["step"] == 3


def test_text_has_the_same(tmp_path: Path) -> None:
    done = run("--log-level", "info", "--log-file", str(tmp_path / "log"))
    assert (done.returncode, done.stderr) == (0, "")
    last = (tmp_path / "log.1").read_text().splitlines()[-1]
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    assert re.fullmatch(time + r" ciranda: info: \[rank 1 localhost step 3\] left the world after .+", last)


def test_a_file_that_cannot_be_written_is_refused() -> None:
    done = run("--log-file", "/nonexistent/log", ranks=1)
    assert done.returncode == 1
    assert "CIRANDA_LOG_FILE='/nonexistent/log': cannot write to /nonexistent/log.0: No such file" in done.stderr


FULL = """
import os
import sys
import ciranda as hvd
from ciranda.process_sets import ProcessSet, add_process_set

hvd.init()
if hvd.rank() == 1:
    log = os.open(os.environ["CIRANDA_LOG_FILE"].replace("%r", "1"), os.O_RDWR | os.O_NONBLOCK)
    for n_bytes in (4096, 1):
        try:
            while True:
                os.write(log, b"x" * n_bytes)
        except BlockingIOError:
            pass
add_process_set(ProcessSet([1]))
hvd.barrier()
print("went on")
if hvd.rank() == 1:
    os.read(log, 1 << 20)
hvd.shutdown()
"""


def test_no_rank_waits_for_the_log_of_another(tmp_path: Path) -> None:
    pipes = []
    for rank in range(2):
        os.mkfifo(tmp_path / str(rank))
        pipes.append(os.open(tmp_path / str(rank), os.O_RDWR))
    done = run("--log-level", "info", "--log-file", str(tmp_path / "%r"), program=FULL)
    assert (done.returncode, done.stdout.count("went on")) == (0, 2), done.stderr
    assert b"process set 1 was added" in os.read(pipes[1], 1 << 20)
    for pipe in pipes:
        os.close(pipe)


LOGGING = """
import logging
import time
import numpy as np
import ciranda as hvd
from ciranda import logs

class Kept(logging.Handler):
    records = []
    def emit(self, record):
        self.records.append(record)
        if "joined" in record.getMessage():
            raise RuntimeError("a handler's fault")

logging.getLogger("ciranda").setLevel(logging.DEBUG)
logging.getLogger("ciranda").addHandler(Kept())
logs.to_logging()
try:
    logs.to_logging()
except hvd.errors.InvalidArgumentError as error:
    print("refused", error)
hvd.init()
rank = hvd.rank()
for _ in range(2):
    hvd.allreduce(np.ones(2), name="x")
    hvd.step()
hvd.shutdown()
logs.stop()
logs.stop()
levels = {record.levelname for record in Kept.records}
assert levels == {"DEBUG", "INFO"}, levels
last = Kept.records[-1]
assert last.getMessage().startswith("left the world"), last
assert (last.rank, last.host, last.step, last.name) == (rank, "localhost", 2, "ciranda")
assert abs(last.created - time.time()) < 600
logs.to_logging("other")
logs.stop()
"""


def test_logging_has_the_messages() -> None:
    done = run("--log-level", "trace", program=LOGGING)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused the lines of the log go to another listener already") == 2
    assert done.stderr.count("RuntimeError: a handler's fault") == 2


AT_EXIT = """
import logging
import os
import sys
import ciranda as hvd
from ciranda import logs

hvd.init()
logging.getLogger("ciranda").setLevel(logging.DEBUG)
logging.getLogger("ciranda").addHandler(logging.StreamHandler(sys.stdout))
logs.to_logging()
ends, keeps = os.pipe()
if (child := os.fork()) == 0:
    os.close(keeps)
    os.read(ends, 1)
    sys.exit(0)
"""


def test_logging_has_the_last_message_at_the_end() -> None:
    """Also if a child has the sockets, and its own end finds neither thread nor lines."""
    done = run("--log-level", "info", program=AT_EXIT)
    assert (done.returncode, done.stderr.count("left the world")) == (0, 0), done.stderr
    assert len(re.findall(r"^\[\d\]<stdout>:left the world after ", done.stdout, re.MULTILINE)) == 2
