"""How the launcher tells the store that a rank will never come, and what it does where the store is not its own."""

from __future__ import annotations

import dataclasses
import socket
import threading

import pytest

from ciranda._core import StoreServer
from ciranda.launch.errors import ProtocolError
from ciranda.launch.withdrawal import Rendezvous

SECRET = bytes(range(32))


def test_only_the_job_s_own_store_is_told() -> None:
    store = StoreServer(["127.0.0.1"], 0, SECRET.hex(), 3, "j")
    ours = Rendezvous("127.0.0.1", store.port, "j", 3, SECRET)
    try:
        ours.withdraw(1, "it has ended")
        for other in (dataclasses.replace(ours, secret=bytes(32)), dataclasses.replace(ours, job="k")):
            with pytest.raises(ProtocolError, match="what answers there is not the store of this job"):
                other.withdraw(1, "it has ended")
    finally:
        store.close()
    with pytest.raises(ConnectionRefusedError):
        ours.withdraw(1, "it has ended")
    assert repr(SECRET) not in repr(ours)


def test_what_hangs_up_is_no_store() -> None:
    def hang_up() -> None:
        connection, _ = listener.accept()
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hang_up).start()
        with pytest.raises((ProtocolError, ConnectionError)):
            Rendezvous("127.0.0.1", listener.getsockname()[1], "j", 3, SECRET).withdraw(1, "it has ended")
