"""Meeting by the key-value space of mpiexec: its protocol, against a server in this process, and sealed secrets."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda._core import KeyAgreement
from ciranda.engines.pmi import Pmi
from ciranda.engines.sealing import seal
from ciranda.errors import InvalidArgumentError, TimeoutError


class Server:
    """As mpiexec serves one process: what it puts can be got after a fence."""

    def __init__(self, answers: dict[str, str] | None = None) -> None:
        self.mine, self.its = socket.socketpair()
        self.requests: list[str] = []
        self._values: dict[str, str] = {}
        self._answers = answers or {}
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self.its.close()
        self._thread.join()
        self.mine.close()

    def _serve(self) -> None:
        with self.mine.makefile("r") as requests, suppress(OSError):
            for line in requests:
                self.requests.append(line.strip())
                words = dict(word.split("=", 1) for word in line.split())
                answer = self._answers.get(words["cmd"], self._answer(words))
                if answer == "close":
                    self.mine.shutdown(socket.SHUT_RDWR)
                elif answer:
                    half = len(answer) // 2
                    for part in (answer[:half], answer[half:] + "\n"):
                        self.mine.sendall(part.encode())

    def _answer(self, words: dict[str, str]) -> str:
        command = words["cmd"]
        if command == "put":
            self._values[words["key"]] = words["value"]
        value = self._values.get(words.get("key", ""), "")
        if command == "get" and not value:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return {
            "get_my_kvsname": "cmd=my_kvsname kvsname=kvs_7_0",
            "put": "cmd=put_result rc=0 msg=success",
            "get": f"cmd=get_result rc=0 msg=success value={value}",
            "barrier_in": "cmd=barrier_out",
            "finalize": "cmd=finalize_ack rc=0",
        }[command]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_objects_of_any_size_are_found(server: Server) -> None:
    pmi = Pmi(server.its.fileno(), 60)
    content = {"text": "á = b\n" * 500, "number": 7}
    pmi.publish("claim-0", content)
    pmi.publish("answer", [])
    pmi.fence()
    assert pmi.lookup("claim-0") == content
    assert pmi.lookup("answer") == []
    pmi.finalize()
    assert max(len(request) for request in server.requests) < 1024  # the longest that some servers take
    assert os.get_blocking(server.its.fileno())  # as an MPI library in the process expects


def test_what_nobody_has_put_is_an_error(server: Server) -> None:
    with pytest.raises(InvalidArgumentError, match="refused get kvsname=kvs_7_0 key=ciranda-answer-0"):
        Pmi(server.its.fileno(), 60).lookup("answer")


def test_a_manager_that_does_not_answer() -> None:
    for answer, error, text in (
        ("", TimeoutError, "gave no answer to barrier_in within 0.2 s"),
        ("close", InvalidArgumentError, "a process of the job has ended without init"),
    ):
        server = Server({"barrier_in": answer})
        pmi = Pmi(server.its.fileno(), 0.2)
        with pytest.raises(error, match=text):
            pmi.fence()
        server.close()
    server = Server({"get_my_kvsname": "close"})
    with pytest.raises(InvalidArgumentError, match="MPI has been finalized in this process, or a program before it"):
        Pmi(server.its.fileno(), 60)
    server.close()


def test_a_descriptor_that_is_no_connection() -> None:
    reading, writing = os.pipe()
    for descriptor in (reading, 999_999):
        with pytest.raises(InvalidArgumentError, match=f"PMI_FD={descriptor}.* is not open in this process"):
            Pmi(descriptor, 60)
    os.close(reading)
    os.close(writing)


@given(st.binary(min_size=32, max_size=32))
def test_a_sealed_secret_is_opened_by_its_receiver_alone(secret: bytes) -> None:
    sender, receiver, other = KeyAgreement(), KeyAgreement(), KeyAgreement()
    sealed = seal(secret, sender, receiver.public_key)
    assert seal(sealed, receiver, sender.public_key) == secret
    assert seal(sealed, other, sender.public_key) != secret
    assert sealed != secret


@pytest.mark.parametrize("other", [bytes(32), b"", bytes(33)])
def test_a_key_that_gives_others_the_secret_is_refused(other: bytes) -> None:
    with pytest.raises(ValueError, match=r"no key to agree on|has 32 bytes"):
        seal(bytes(32), KeyAgreement(), other)
