"""Agents that connect to a launcher which listens on several addresses."""

from __future__ import annotations

import socket
import threading

import pytest

from ciranda.launch.channel import Channel
from ciranda.launch.dialling import dial
from ciranda.launch.errors import LaunchError
from ciranda.launch.gathering import Gathering
from ciranda.launch.handshake import Terms

TERMS = Terms(bytes(range(32)), "j", 3)
ADDRESSES = ("127.0.0.1", "127.0.0.2")


def nobody() -> tuple[str, int]:
    """Where nothing listens."""
    with socket.create_server(("127.0.0.3", 0)) as listener:
        return "127.0.0.3", listener.getsockname()[1]


def test_all_addresses_are_served_and_tried() -> None:
    gathering = Gathering(0, TERMS, ADDRESSES)
    assert [address for address, _ in gathering.ends] == list(ADDRESSES)
    channels: list[Channel] = []
    said: list[str] = []

    def come(index: int) -> None:
        channels.append(dial([nobody(), gathering.ends[index - 1]], TERMS, index, 30, said.append))

    threads = [threading.Thread(target=come, args=(index,)) for index in (1, 2)]
    for thread in threads:
        thread.start()
    assert gathering.wait(30, lambda: None)
    for thread in threads:
        thread.join()
    met = gathering.take()
    assert sorted(met) == [1, 2]
    assert sorted(each.socket.getsockname()[0] for each in met.values()) == list(ADDRESSES)
    assert [text.startswith("waiting for 127.0.0.3, port ") for text in said] == [True, True]
    gathering.close()
    for channel in [*met.values(), *channels]:
        channel.socket.close()


def test_why_none_has_let_it_in_is_said_for_each() -> None:
    one, other = nobody(), nobody()
    with pytest.raises(LaunchError) as caught:
        dial([one, other], TERMS, 1, 0.2, lambda _: None)
    assert [f"127.0.0.3, port {port}, gave no answer" in str(caught.value) for _, port in (one, other)] == [True, True]


def test_an_address_that_cannot_be_used_leaves_no_listener() -> None:
    with pytest.raises(OSError, match="assign"):
        Gathering(0, TERMS, ("127.0.0.1", "192.0.2.1"))
