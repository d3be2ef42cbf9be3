"""What passes between a launcher and its agents: an agent alone, and a launcher with an agent that lies."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_support import GUARD_SECONDS, close_all, python_rank, run

from ciranda.launch import protocol, ssh
from ciranda.launch.link import AgentLink
from ciranda.launch.protocol import Message

pytestmark = pytest.mark.multiprocess

_IGNORES_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
_ENDS_AT_TERM = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('ready', flush=True)\n"
)
_WAITS = "while True: signal.pause()\n"


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


class _Agent:
    """One on this machine, that has said hello."""

    def __init__(self) -> None:
        self.link = AgentLink("localhost", [], ssh.local_command(sys.executable))
        self._heard: list[Message] = []
        assert self.next("hello")["version"] == protocol.VERSION

    def next(self, kind: str) -> Message:
        """Its next message of that kind; fails if it ends, or says none in time."""
        deadline = time.monotonic() + GUARD_SECONDS
        while True:
            while self._heard:
                message = self._heard.pop(0)
                if message["t"] == kind:
                    return message
            ready, _, _ = select.select([self.link.out_fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {kind!r} within {GUARD_SECONDS} s"
            self._heard = self.link.read_messages()
            assert self._heard or self.link.out_fd in self.link.open_fds, f"the agent ended without {kind!r}"

    def start(self, code: str) -> None:
        """Start a rank, and return once it has said something."""
        self.link.send(
            {
                "t": "spec",
                "version": protocol.VERSION,
                "argv": python_rank(code),
                "env": {protocol.to_text(name): protocol.to_text(value) for name, value in os.environb.items()},
                "inherit": False,
                "cwd": "/",
                "ranks": [{"rank": 0, "env": {}}],
                "secret": "0" * 64,
                "grace": 60.0,
                "blobs": [],
                "results": False,
                "bind_to": "none",
                "connections": [],
                **dict.fromkeys(("job", "host", "metrics", "metrics_dir"), ""),
            }
        )
        self.link.send({"t": "start"})
        self.next("data")

    def end(self, grace_seconds: float) -> None:
        self.link.send({"t": "end", "grace": grace_seconds})


@pytest.fixture
def agent() -> Iterator[_Agent]:
    started = _Agent()
    yield started
    started.link.kill()
    started.link.close()


def test_what_ignores_the_order_to_end_is_killed_after_the_grace(agent: _Agent) -> None:
    """By the agent itself, which tells so: nobody else ends it here."""
    agent.start(_IGNORES_TERM + _WAITS)
    agent.end(0.1)
    assert agent.next("exit")["code"] == -signal.SIGKILL
    assert agent.next("done")["reason"] == "order"


def test_nothing_is_killed_within_the_grace(agent: _Agent) -> None:
    """It is a minute here, and what ends by itself is not waited for so long."""
    agent.start(_ENDS_AT_TERM + _WAITS)
    agent.end(60.0)
    assert agent.next("exit")["code"] == 7
    assert agent.next("done")["reason"] == "order"


# In the place of ssh: an agent that speaks for the rank of the launcher's own host.
_LIAR = """#!{python} -S
import json, sys
if "-G" in sys.argv:
    print("hostname 127.0.0.1")
    sys.exit()
def say(message):
    print(json.dumps(message), flush=True)
say({{"t": "hello", "version": {version}, "pid": 1, "host": "elsewhere"}})
for line in sys.stdin:
    if json.loads(line)["t"] == "start":
        say({lie})
    if json.loads(line)["t"] == "end":
        break
"""


@pytest.mark.parametrize(
    "lie",
    [
        {"t": "data", "rank": 0, "stream": "stdout", "data": protocol.pack(b"not what rank 0 said\n")},
        {"t": "exit", "rank": 0, "code": 3, "ended": False},
        {"t": "absent", "rank": 0},
        {"t": "started", "rank": 0, "pid": 1},
    ],
    ids=lambda lie: lie["t"],
)
def test_an_agent_may_not_speak_for_the_rank_of_another_host(lie: Message, tmp_path: Path) -> None:
    fake = tmp_path / "ssh"
    fake.write_text(
        _LIAR.format(python=sys.executable, version=protocol.VERSION, lie=json.dumps(lie).replace("false", "False"))
    )
    fake.chmod(0o700)
    exit_code, out, err = run(
        ["run", "-H", "localhost:1,elsewhere:1", "--grace", "0.1", *python_rank("import signal\n" + _WAITS)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert exit_code == 1
    assert out == b""
    assert err.splitlines()[-1] == b"ciranda: elsewhere: rank 0 is not its own"
