"""The agent's way to a launcher that it must reach: it tries until the launcher is there and has admitted it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence

from ciranda.launch import protocol
from ciranda.launch.channel import Channel
from ciranda.launch.errors import LaunchError, ProtocolError
from ciranda.launch.handshake import NONCE_BYTES, ConnectingHandshake, State, Terms
from ciranda.launch.sealing import Opener, Sealer

_CONNECT_SECONDS = 5.0
_FIRST_SLEEP_SECONDS = 0.05
_LONGEST_SLEEP_SECONDS = 1.0


class _NotYetError(Exception):
    """This attempt has failed, for a reason that may pass."""


def dial(
    addresses: Sequence[tuple[str, int]], terms: Terms, index: int, seconds: float, say: Callable[[str], None]
) -> Channel:
    """Connect to the launcher at one of ``addresses``, again and again, until this agent is admitted.

    ``say`` is told why it does not work yet, once for each reason.

    Returns:
        The connection.

    Raises:
        LaunchError: it has not been admitted within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    sleep = _FIRST_SLEEP_SECONDS
    reasons: dict[tuple[str, int], str] = {}
    while True:
        for address in addresses:
            try:
                return _try(address, terms, index, deadline)
            except (OSError, ProtocolError, _NotYetError) as error:
                reason = getattr(error, "strerror", None) or str(error) or "it has ended"
                if reasons.get(address) != reason:
                    say(f"waiting for {address[0]}, port {address[1]}: {reason}")
                reasons[address] = reason
        if time.monotonic() + sleep >= deadline:
            told = "; ".join(
                f"{host}, port {port}, gave no answer within {seconds:g} s: {reason}"
                for (host, port), reason in reasons.items()
            )
            raise LaunchError(told)
        time.sleep(sleep)
        sleep = min(1.5 * sleep, _LONGEST_SLEEP_SECONDS)


def _try(address: tuple[str, int], terms: Terms, index: int, deadline: float) -> Channel:
    connection = socket.create_connection(address, _CONNECT_SECONDS)
    try:
        handshake = ConnectingHandshake(terms, index, os.urandom(NONCE_BYTES))
        connection.sendall(handshake.begin())
        while handshake.state is State.PENDING:
            data = connection.recv(handshake.wants())
            if not data:
                raise _NotYetError("it did not let this host in: has it the same secret, name and number of hosts?")
            connection.sendall(handshake.receive(data))
        if handshake.state is State.REFUSED:
            raise _NotYetError("what answers there has not the secret of this job")
        keys = handshake.keys
        channel = Channel(connection, Sealer(keys.of_agent), Opener(keys.of_launcher))
        _await_admission(channel, deadline)
        return channel
    except BaseException:
        connection.close()
        raise


def _await_admission(channel: Channel, deadline: float) -> None:
    """Wait until all hosts have come."""
    reader = protocol.MessageReader()
    messages: list[protocol.Message] = []
    while not messages:
        channel.socket.settimeout(max(0.1, deadline - time.monotonic()))
        # One record: what follows is for the agent.
        data = channel.socket.recv(1)
        if not data:
            raise _NotYetError("the launcher there has ended")
        messages = reader.feed(channel.opener.open(data))
    if messages[0]["t"] != "admitted":
        raise ProtocolError(f"unexpected message {messages[0]['t']!r}")
