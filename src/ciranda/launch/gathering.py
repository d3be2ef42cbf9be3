"""The launcher's port, at which agents that others have started come in: those that have the secret, and no one else.

Who connects may send the fixed number of bytes of a handshake, within some seconds. An agent that has proved itself is
told nothing until all have come: then all are admitted at once. One that goes before, or comes again, is replaced.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from ciranda.launch import protocol
from ciranda.launch.channel import Channel
from ciranda.launch.handshake import NONCE_BYTES, AcceptingHandshake, State, Terms
from ciranda.launch.sealing import Opener, Sealer

_HANDSHAKE_SECONDS = 5.0
_MOST_GUESTS = 64  # that have proved nothing yet; beyond, the oldest is sent away
_SEND_SECONDS = 5.0
_VERDICT_SECONDS = 1.0


class _Guest:
    """A connection that has proved nothing yet."""

    def __init__(self, connection: socket.socket, terms: Terms) -> None:
        self.socket = connection
        self.handshake = AcceptingHandshake(terms, os.urandom(NONCE_BYTES))
        self.deadline = time.monotonic() + _HANDSHAKE_SECONDS


def _listen(port: int, address: str) -> socket.socket:
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=1024)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=1024)


class Gathering:
    """Owns the ports and the connections until all have come. One thread.

    Attributes:
        ends: the addresses and ports where it listens; ``port`` is the first one's.
    """

    def __init__(self, port: int, terms: Terms, addresses: Sequence[str] = ("",)) -> None:
        """Listen at ``port``, or any if 0, on each of ``addresses``, "" for all; OSError if it is taken."""
        self._terms = terms
        self._listeners: list[socket.socket] = []
        try:
            for address in addresses:
                self._listeners.append(_listen(port, address))
        except OSError:
            self._close_listeners()
            raise
        for listener in self._listeners:
            listener.setblocking(False)
        ports = [int(listener.getsockname()[1]) for listener in self._listeners]
        self.ends = list(zip(addresses, ports, strict=True))
        self.port = ports[0]
        self._guests: list[_Guest] = []
        self._channels: dict[int, Channel] = {}

    @property
    def missing(self) -> list[int]:
        """The indices of hosts whose agents are not here."""
        return [index for index in range(1, self._terms.n_hosts) if index not in self._channels]

    def wait(self, seconds: float, on_change: Callable[[], None]) -> bool:
        """Wait until all have come, and admit them; False if some have not in time. ``on_change``: often, to tell."""
        deadline = time.monotonic() + seconds
        while self.missing:
            now = time.monotonic()
            if now >= deadline:
                return False
            self._drop_late_guests(now)
            self._turn(min([deadline - now, 1.0, *(guest.deadline - now for guest in self._guests)]))
            on_change()
        for channel in self._channels.values():
            with suppress(OSError):  # who has it will see that the agent is gone
                channel.send({"t": "admitted"}, _SEND_SECONDS)
        return True

    def take(self) -> Mapping[int, Channel]:
        """Hand over the agents' connections, by index, which are the caller's from now on. REQUIRES: wait() is True."""
        channels, self._channels = self._channels, {}
        return channels

    def close(self) -> None:
        """Stop listening, and end all connections that are still its own."""
        self._close_listeners()
        for guest in self._guests:
            guest.socket.close()
        for index in list(self._channels):
            self._leave(index)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _turn(self, timeout: float) -> None:
        with selectors.DefaultSelector() as selector:
            for listener in self._listeners:
                selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))
            for guest in self._guests:
                selector.register(guest.socket, selectors.EVENT_READ, lambda guest=guest: self._hear(guest))
            for index, channel in self._channels.items():  # silent until admitted: it has gone
                selector.register(channel.socket, selectors.EVENT_READ, lambda index=index: self._leave(index))
            for key, _ in selector.select(max(0.0, timeout)):
                key.data()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            self._guests.append(_Guest(connection, self._terms))
            if len(self._guests) > _MOST_GUESTS:
                self._send_away(self._guests[0])

    def _hear(self, guest: _Guest) -> None:
        if guest not in self._guests:  # sent away in this turn
            return
        handshake = guest.handshake
        try:
            data = guest.socket.recv(handshake.wants())
            answer = handshake.receive(data) if data else b""
            is_sent = guest.socket.send(answer) == len(answer) if answer else True
        except BlockingIOError:
            return
        except OSError:
            data, is_sent = b"", False
        if handshake.state is State.PROVED:
            self._welcome(guest)
        elif not data or not is_sent or handshake.state is State.REFUSED:
            self._send_away(guest)

    def _welcome(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        index, keys = guest.handshake.index, guest.handshake.keys
        if index in self._channels:  # it has been started anew
            self._leave(index)
        self._channels[index] = Channel(guest.socket, Sealer(keys.of_launcher), Opener(keys.of_agent))

    def _leave(self, index: int) -> None:
        channel = self._channels.pop(index, None)
        if channel is not None:
            channel.socket.close()

    def _drop_late_guests(self, now: float) -> None:
        for guest in [each for each in self._guests if each.deadline <= now]:
            self._send_away(guest)

    def _send_away(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        guest.socket.close()


def dismiss(channels: Mapping[int, Channel], code: int, reason: str | None = None) -> None:
    """Tell all agents how the job has ended, and why if not by a rank; wait a moment for them to have heard it."""
    for channel in channels.values():
        try:
            channel.send(protocol.verdict(code, reason), _VERDICT_SECONDS)
        except OSError:  # it is gone
            continue
    deadline = time.monotonic() + _VERDICT_SECONDS
    for channel in channels.values():
        try:
            while (left := deadline - time.monotonic()) > 0:
                channel.socket.settimeout(left)
                if not channel.socket.recv(1 << 16):
                    break
        except OSError:
            pass
        channel.socket.close()
