"""When a host counts as cut off: looks at what the kernel says of connections, some of them real."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ciranda.launch import silence
from ciranda.launch.silence import (
    Silence,
    accepted_by,
    limit_of,
    of_connections,
    of_process,
    of_socket,
    seen_from_there,
)

LIMIT = 8.0
PERIOD = 1.0


def info(retransmits: int = 0, probes: int = 0, last_ack_seconds: float = 0.0, n_unsent: int = 0) -> bytes:
    """What the kernel says of a connection (struct tcp_info)."""
    made = bytearray(148)
    made[2], made[3] = retransmits, probes
    struct.pack_into("=I", made, 56, round(1000 * last_ack_seconds))
    struct.pack_into("=I", made, 144, n_unsent)
    return bytes(made)


class Looks:
    """Looks at a connection, whose state and whose time the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1000.0
        self._seen = b""
        monkeypatch.setattr(silence.time, "monotonic", lambda: self._now)
        self._silence = Silence(lambda: self._seen, LIMIT)

    def see(self, seen: bytes, later: float = PERIOD) -> bool:
        self._now += later
        self._seen = seen
        is_too_long = self._silence.is_too_long()
        assert self._silence.deadline == self._now + PERIOD
        return is_too_long


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_data_in_vain_ends_it_before_the_limit_is_exceeded(looks: Looks) -> None:
    assert not looks.see(info())
    assert not any(looks.see(info(retransmits=1, last_ack_seconds=second)) for second in range(1, 7))
    assert looks.see(info(retransmits=1, last_ack_seconds=7))


def test_what_is_seen_once_is_not_enough_however_old_the_last_answer(looks: Looks) -> None:
    assert not looks.see(info(retransmits=1, last_ack_seconds=900))
    assert not looks.see(info(retransmits=1, last_ack_seconds=901))
    assert not looks.see(info())
    assert not looks.see(info(retransmits=1, last_ack_seconds=900))


def test_probes_for_room_are_in_vain_for_all_of_the_limit(looks: Looks) -> None:
    seen = [looks.see(info(probes=1, last_ack_seconds=100 + second, n_unsent=1)) for second in range(9)]
    assert seen == [False] * 8 + [True]


def test_probes_of_an_idle_connection_and_no_answer_of_the_kernel_are_nothing(looks: Looks) -> None:
    assert not any(looks.see(info(probes=3, last_ack_seconds=100)) for _ in range(20))
    assert not any(looks.see(b"") for _ in range(20))


def test_time_in_which_nobody_looked_does_not_count(looks: Looks) -> None:
    assert not looks.see(info(retransmits=1))
    assert not looks.see(info(retransmits=1, last_ack_seconds=60), later=60.0)
    assert not looks.see(info())


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 3.0), ("7.5", 7.5), ("0.1", 1.0), ("1e9", 3600.0), ("no number", 3.0)]
)
def test_the_limit_is_the_engine_s(text: str | None, seconds: float) -> None:
    assert limit_of({} if text is None else {"CIRANDA_LINK_TIMEOUT": text}) == seconds


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server((request.param, 0), family=family))
        except OSError:
            pytest.skip(f"there is no {request.param} here")
        mine = stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
        yield mine, stack.enter_context(listener.accept()[0])


def test_the_kernel_tells_of_own_and_of_others_connections(pair: tuple[socket.socket, socket.socket]) -> None:
    mine, theirs = pair
    by_itself = of_socket(mine)()
    other, own = mine.getpeername()[:2], mine.getsockname()[:2]
    (told,) = seen_from_there([(other, own)])
    assert told == f"{other[0]} {other[1]} {own[0]} {own[1]}"
    look = of_connections(["nonsense", told])
    assert look is not None
    for seen in (by_itself, look()):
        assert len(seen) >= 148
        assert seen[0] == 1  # established
        assert seen[16:20] == by_itself[16:20]  # the size of its packets
    theirs.close()
    mine.close()
    assert of_socket(mine)() == b""


@pytest.mark.parametrize("text", ["", "nonsense", "1.2.3.4 5 6.7.8.9", "a 1 b 2", "1.2.3.4 x 6.7.8.9 y"])
def test_without_a_known_connection_there_is_nothing_to_see(text: str) -> None:
    assert of_connections([text]) is None


def test_of_a_connection_that_is_no_more_nothing_is_seen() -> None:
    look = of_connections(["127.0.0.1 1 127.0.0.1 1"])
    assert look is not None
    assert look() == b""


CALLED = """
import socket, sys
listening = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(listening.getsockname()[1], flush=True)
called = socket.create_connection(listening.getsockname()[:2])  # at its own port, but not accepted yet
kept = [listening.accept()[0] for _ in range(2)]
print("accepted", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_another_process_has_accepted_is_seen_and_the_best_of_it_counts(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", CALLED, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        look = of_process(process.pid)
        port = int(process.stdout.readline())
        with socket.create_connection((address, port)) as connection:
            assert process.stdout.readline() == "accepted\n"
            own = connection.getsockname()[:2]
            found = accepted_by(process.pid)
            assert ((address, port), own) in found
            assert {end for end, _ in found} == {(address, port)}
            assert len(found) == 2  # its own call's other end is no connection that it has accepted
            assert len(look()) >= silence._TCP_INFO_BYTES
            in_vain = {request: index for index, request in enumerate(look._requests)}  # type: ignore[attr-defined]
            monkeypatch.setattr(silence, "_looks_in_vain", lambda info: info[0])
            monkeypatch.setattr(silence, "_answer", lambda request: bytes([3 - in_vain[request]]))
            assert look() == bytes([2])
        process.communicate("")
    monkeypatch.undo()
    assert look() == b""
    assert accepted_by(process.pid) == []
