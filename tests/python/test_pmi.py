"""Meeting by the key-value space of mpiexec or srun: the protocols, against servers in this process; sealed secrets."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda._core import KeyAgreement
from ciranda.engines import key_values, pmix
from ciranda.engines.identity import identity
from ciranda.engines.key_value_space import KeyValueSpace
from ciranda.engines.pmi import Pmi
from ciranda.engines.pmi2 import Pmi2
from ciranda.engines.sealing import seal
from ciranda.errors import InvalidArgumentError, TimeoutError


class Server:
    """As mpiexec serves one process: what it puts can be got after a fence."""

    def __init__(self, answers: dict[str, str] | None = None) -> None:
        self.mine, self.its = socket.socketpair()
        self.requests: list[str] = []
        self._values: dict[str, str] = {}
        self._answers = answers or {}
        self._thread = threading.Thread(target=self._serve, daemon=True)
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
    assert pmi.lookup("claim-0", 0) == content
    assert pmi.lookup("answer", 0) == []
    pmi.finalize()
    assert max(len(request) for request in server.requests) < 1024  # the longest that some servers take
    assert os.get_blocking(server.its.fileno())  # as an MPI library in the process expects


def test_what_nobody_has_put_is_an_error(server: Server) -> None:
    with pytest.raises(InvalidArgumentError, match="refused get kvsname=kvs_7_0 key=ciranda-answer-0"):
        Pmi(server.its.fileno(), 60).lookup("answer", 0)


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


class Slurm(Server):
    """As the daemon of Slurm serves one task: a line first, then messages with their lengths."""

    def _serve(self) -> None:
        with self.mine.makefile("rb") as requests, suppress(OSError, ValueError):
            first = requests.readline()
            answer = self._answers.get("init", "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n")
            assert first == b"cmd=init pmi_version=2 pmi_subversion=0\n"
            self.mine.sendall(answer.encode())
            while length := requests.read(6):
                self._serve_one(requests.read(int(length)).decode())

    def _serve_one(self, request: str) -> None:
        self.requests.append(request)
        assert request.endswith(";")
        words = dict(word.split("=", 1) for word in request[:-1].split(";"))
        answer = self._answers.get(words["cmd"], self._answer(words))
        if answer == "close":
            self.mine.shutdown(socket.SHUT_RDWR)
        elif answer:
            for part in (answer[:9], answer[9:]):
                self.mine.sendall(part.encode())

    def _answer(self, words: dict[str, str]) -> str:
        name = words["cmd"]
        if name in ("kvs-put", "info-putnodeattr"):
            self._values[words["key"]] = words["value"]
        value = self._values.get(words.get("key", ""))
        found = "found=FALSE;" if value is None else f"found=TRUE;value={value};"
        return message(f"cmd={name}-response;rc=0;{found if 'get' in name else ''}")


def message(text: str) -> str:
    return f"{len(text):<6}{text}"


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    made = Slurm()
    yield made
    made.close()


def test_objects_of_any_size_are_found_in_a_step_also_by_its_next_program(slurm: Slurm) -> None:
    """Slurm closes a connection that is opened twice, and serves it until the task ends."""
    content = {"text": "á = b;\n" * 500, "number": 7}
    first = Pmi2(slurm.its.fileno(), 60)
    first.publish("claim-0", content)
    first.fence()
    assert first.lookup("claim-0", 0) == content
    second = Pmi2(slurm.its.fileno(), 60)
    second.publish("answer", [])
    second.fence()
    assert second.lookup("answer", 0) == []
    assert (first.is_first, second.is_first) == (True, False)
    assert [request for request in slurm.requests if "init" in request] == [
        "cmd=fullinit;pmijobid=-1;pmirank=-1;threaded=FALSE;"
    ]
    assert max(len(request) for request in slurm.requests) < 1024
    assert os.get_blocking(slurm.its.fileno())


def test_what_nobody_has_put_in_a_step_is_an_error(slurm: Slurm) -> None:
    with pytest.raises(InvalidArgumentError, match="has no ciranda-answer-0: not all tasks of the step have called"):
        Pmi2(slurm.its.fileno(), 60).lookup("answer", 0)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"kvs-put": "close"}, "srun has closed the connection to srun .* a program before it in the same task"),
        ({"kvs-put": message("cmd=kvs-put-response;rc=3;errmsg=no room;")}, "refused kvs-put: no room"),
        ({"kvs-put": "GET / HTTP"}, "does not speak PMI-2: a message begins with 'GET /'"),
        ({"kvs-put": "999999 "}, "a message begins with '999999'"),
        ({"init": "cmd=response_to_init rc=1 pmi_version=1 pmi_subversion=1\n"}, "does not speak PMI-2 with this"),
        ({"fullinit": message("cmd=finalize-response;rc=0;"), "kvs-put": "close"}, "gave no answer|has closed"),
    ],
)
def test_a_step_that_does_not_serve_its_tasks(answers: dict[str, str], text: str) -> None:
    server = Slurm(answers)
    with pytest.raises((InvalidArgumentError, TimeoutError), match=text):
        Pmi2(server.its.fileno(), 0.5).publish("claim-0", {})
    server.close()


def test_tasks_that_do_not_come_are_known_on_their_node_and_nobody_waits_again() -> None:
    """An answer to what was given up may come before that to the next request."""
    late = message("cmd=kvs-fence-response;rc=0;")
    there = message("cmd=info-getnodeattr-response;rc=0;found=TRUE;value=1;")
    server = Slurm({"kvs-fence": "", "info-getnodeattr": late + there})
    space = Pmi2(server.its.fileno(), 0.2)
    space.tell_node("came", 0)
    with pytest.raises(TimeoutError, match="gave no answer within"):
        space.fence()
    assert space.is_told("came", 0)
    with pytest.raises(InvalidArgumentError, match=r"cannot be used any more: init\(\) has failed in this task before"):
        Pmi2(server.its.fileno(), 60)
    server.close()


class Library:
    """As libpmix serves one process: what it puts can be got after a fence."""

    def __init__(self, statuses: dict[str, int] | None = None) -> None:
        self.statuses = statuses or {}
        self.calls: list[str] = []
        self.may_return = threading.Event()
        self._values: dict[bytes, pmix._Value] = {}
        for name in ("Init", "Put", "Commit", "Fence", "Get", "Finalize"):
            setattr(self, f"PMIx_{name}", partial(self._call, name))
        self.PMIx_Error_string = partial(lambda status: b"STATUS %d" % status)

    def _call(self, name: str, *arguments: Any) -> int:
        self.calls.append(name)
        if name == "Put":
            _, key, value = arguments
            self._values[key] = value._obj
        elif name == "Fence":
            assert arguments[2]._obj.key == b"pmix.collect"
            assert self.may_return.wait(60)
        elif name == "Get":
            who, key, *_, found = arguments
            if who._obj.rank != 0 or key not in self._values:
                return -46
            found._obj.contents = self._values[key]
        return self.statuses.get(name, 0)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    made.may_return.set()
    monkeypatch.setattr(pmix, "_library", lambda: made)
    monkeypatch.setattr(pmix, "_stuck", [])
    return made


PMIX = {"PMIX_NAMESPACE": "slurm.pmix.17.0", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}


def test_objects_of_any_size_are_found_by_pmix_and_the_connection_is_ended(library: Library) -> None:
    content = {"text": "á = b;\n" * 500, "number": 7}
    with pmix.connected(PMIX, 60) as space:
        space.publish("claim-0", content)
        space.fence()
        assert space.lookup("claim-0", 0) == content
        with pytest.raises(InvalidArgumentError, match=r"refused PMIx_Get\(\): STATUS -46. Set CIRANDA_H"):
            space.lookup("claim-0", 1)
    assert (library.calls[0], library.calls[-1]) == ("Init", "Finalize")
    calls = library.calls[2:]  # without the look for a failure before
    assert calls.index("Commit") < calls.index("Fence") < calls.index("Get")


def test_a_manager_that_pmix_does_not_reach(library: Library) -> None:
    library.statuses["Init"] = -25
    with pytest.raises(InvalidArgumentError, match=r"refused PMIx_Init\(\): STATUS -25"), pmix.connected(PMIX, 60):
        pass
    assert library.calls == ["Init"]


def test_a_fence_of_pmix_that_does_not_end_is_given_up_and_nobody_waits_again(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither here, nor in a program after it, which finds what this one has left."""
    library.may_return.clear()
    why = r"gave no answer to PMIx_Fence\(\) within 0.2 s"
    with pmix.connected(PMIX, 0.2) as space:
        space.tell_node("came", 0)
        with pytest.raises(TimeoutError, match=why):
            space.fence()
        assert (space.is_told("came", 0), space.is_told("came", 1)) == (True, False)
    assert library.calls[-1] == "Finalize"
    for stuck in (pmix._stuck, []):
        monkeypatch.setattr(pmix, "_stuck", stuck)
        with pytest.raises(InvalidArgumentError, match="cannot be used any more"), pmix.connected(PMIX, 60):
            pass
        assert library.calls[-1] == "Finalize"
    library.may_return.set()


def test_pmix_is_used_for_its_own_step_where_its_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmix, "_LIBRARY", "libc.so.6")
    assert pmix.is_reached(PMIX)
    assert not pmix.is_reached({**PMIX, "SLURM_STEP_ID": "1"})  # an srun within it, with --mpi=none
    monkeypatch.setattr(pmix, "_LIBRARY", "libnone.so.2")
    assert not pmix.is_reached(PMIX)


class Kept(KeyValueSpace):
    """A space of one process, which says what it is told to."""

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    def fence(self) -> None: ...
    def put(self, key: str, value: str) -> None: ...
    def get(self, key: str, rank: int) -> str: ...  # type: ignore[empty-body]

    def lookup(self, key: str, rank: int) -> object:
        return self._values[key]


def test_an_answer_to_a_program_before_is_not_used() -> None:
    found = identity({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"})
    assert found is not None
    mine, before = KeyAgreement(), KeyAgreement()
    answer = {"to": before.public_key.hex(), "sealed": "00" * 32, "numbers": {}}
    with pytest.raises(InvalidArgumentError, match="rank 1 of 2: the answer of rank 0 is to a program before this one"):
        key_values._answer_to(Kept({"answer": {"key": ""}, "answer-1": answer}), found, mine)


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
