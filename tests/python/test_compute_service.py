"""The service by which training processes find those that prepare their data."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("horovod")

from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util import secret
from horovod.runner.common.util.network import NoValidAddressesFound
from horovod.runner.common.util.timeout import Timeout, TimeoutException

KEY = secret.make_secret_key()


@pytest.fixture
def service() -> Iterator[ComputeService]:
    made = ComputeService(2, 2, KEY, nics=["lo"])
    yield made
    made.shutdown()


@pytest.fixture
def client(service: ComputeService) -> ComputeClient:
    return ComputeClient(service.addresses(), KEY)


def _in_thread(function: Callable[..., Any], *arguments: Any) -> tuple[threading.Thread, list[Any]]:
    """What it returns, or raises, is put into the list."""
    found: list[Any] = []

    def body() -> None:
        try:
            found.append(function(*arguments))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, found


def test_who_waits_is_told_when_what_it_waits_for_has_come(client: ComputeClient) -> None:
    waits = [
        _in_thread(client.wait_for_dispatcher_registration, 1, 20),
        _in_thread(client.wait_for_dispatcher_worker_registration, 1, 20),
    ]
    client.register_dispatcher(1, "grpc://somewhere:1")
    client.register_dispatcher(1, "grpc://somewhere:1")  # again is no harm
    client.register_worker_for_dispatcher(1, 7)
    client.register_worker_for_dispatcher(1, 7)
    client.register_worker_for_dispatcher(0, 8)  # another's
    waits[0][0].join(20)
    assert waits[0][1] == ["grpc://somewhere:1"]
    assert waits[1][0].is_alive()
    client.register_worker_for_dispatcher(1, 9)
    waits[1][0].join(20)
    assert waits[1][1] == [None]


def test_what_never_comes_is_named(client: ComputeClient) -> None:
    with pytest.raises(TimeoutException, match=r"^Timed out waiting for dispatcher 0 to register\..* 0.1 seconds"):
        client.wait_for_dispatcher_registration(0, 0.1)
    client.register_worker_for_dispatcher(0, 1)
    with pytest.raises(TimeoutException, match=r"^Timed out waiting for workers for dispatcher 0 to register\."):
        client.wait_for_dispatcher_worker_registration(0, 0.1)


def test_what_cannot_be_is_refused(client: ComputeClient) -> None:
    for call in (
        lambda: client.register_dispatcher(2, "x"),
        lambda: client.register_worker_for_dispatcher(-1, 0),
        lambda: client.wait_for_dispatcher_registration(2, 1),
        lambda: client.wait_for_dispatcher_worker_registration(2, 1),
    ):
        with pytest.raises(IndexError, match=r"within \[0\.\.1\]: (2|-1)$"):
            call()
    client.register_dispatcher(0, "here")
    with pytest.raises(ValueError, match="here, not there"):
        client.register_dispatcher(0, "there")
    for numbers in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(ValueError, match="must be larger than 0"):
            ComputeService(*numbers, KEY)


def test_one_dispatcher_is_everybodys() -> None:
    service = ComputeService(1, 1, KEY, nics=["lo"])
    client = ComputeClient(service.addresses(), KEY)
    client.register_worker_for_dispatcher(0, 0)
    client.wait_for_dispatcher_worker_registration(5, 5)
    service.shutdown()


def test_shutdown_tells_all_who_wait(service: ComputeService, client: ComputeClient) -> None:
    thread, found = _in_thread(client.wait_for_shutdown)
    other, failed = _in_thread(client.wait_for_dispatcher_registration, 0, 60)
    client.shutdown()
    thread.join(20)
    other.join(20)
    assert found == [None] or isinstance(found[0], ConnectionError)  # it had not been heard yet
    assert isinstance(failed[0], (TimeoutException, ConnectionError))
    service.shutdown()
    with pytest.raises(ConnectionError):
        client.shutdown()


def test_strangers_learn_nothing_and_hold_up_nobody(service: ComputeService) -> None:
    with pytest.raises(NoValidAddressesFound, match="another key"):
        ComputeClient(service.addresses(), secret.make_secret_key())
    address = service.addresses()["lo"][0]
    with socket.create_connection(address) as silent, socket.create_connection(address) as noisy:
        noisy.sendall(b"\xff" * 4096)
        ComputeClient(service.addresses(), KEY).register_dispatcher(0, "x")
        assert silent.fileno() >= 0
        service.shutdown()  # which waits for neither


def test_no_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unheard:
        port = unheard.getsockname()[1]
    with pytest.raises(NoValidAddressesFound, match="Compute service cannot be reached"):
        ComputeClient({"lo": [("127.0.0.1", port)]}, KEY)
    with pytest.raises(NoValidAddressesFound, match="no address"):
        ComputeClient({}, KEY)
    with pytest.raises(NoValidAddressesFound, match="no network interface"):
        ComputeService(1, 1, KEY, nics=["nosuch0"])


def test_digests_and_timeouts() -> None:
    digest = secret.compute_digest(KEY, b"text")
    assert len(digest) == secret.DIGEST_LENGTH
    assert secret.check_digest(KEY, b"text", digest)
    assert not secret.check_digest(secret.make_secret_key(), b"text", digest)
    limit = Timeout(60, "{activity} took too long")
    limit.check_time_out_for("this")
    assert 0 < limit.remaining() <= 60
    with pytest.raises(TimeoutException, match=r"^that took too long"):
        Timeout(0, "{activity} took too long").check_time_out_for("that")
