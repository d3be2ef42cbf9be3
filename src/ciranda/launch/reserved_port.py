"""TCP ports of this host that are reserved for servers of the job, and the address of this host.

Rank 0 itself creates torch.distributed.TCPStore and JAX's coordinator, at a port that all ranks know before. So that no
other process takes it meanwhile (another job on this host, a socket that requests any port), the agent keeps a socket
bound to it for as long as the job lasts. It does not listen, and has SO_REUSEADDR: the system then lets another socket
with SO_REUSEADDR listen there, as torch's and JAX's have, but does not assign the port to a socket that requests any.
Another port is for the store of torch.distributed that the agent hosts (torch_store.py). Standard library only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from ciranda.launch import protocol, torch_store
from ciranda.launch.environment import Meeting
from ciranda.launch.errors import ProtocolError
from ciranda.launch.protocol import Message

MAX_PORTS = 2  # torch's, JAX's


class ReservedPort:
    """Owns the socket. Nothing is ever received there."""

    def __init__(self, ports: Sequence[int]) -> None:
        """Reserve the first of ``ports`` that is free (0: any); OSError if none is."""
        failure = OSError("there is no port to choose from")
        for port in ports:
            try:
                self._socket = _bound(port)
            except OSError as error:
                failure = error
            else:
                self.port: int = self._socket.getsockname()[1]
                return
        raise failure

    def listen(self) -> int:
        """Let clients connect, who wait for the process that takes the socket over; its descriptor."""
        self._socket.listen(socket.SOMAXCONN)
        return self._socket.fileno()

    def close(self) -> None:
        """Release it."""
        self._socket.close()


def _bound(port: int) -> socket.socket:
    """A socket bound to the port, otherwise unused, on every address."""
    try:
        made, anywhere = socket.socket(socket.AF_INET6, socket.SOCK_STREAM), "::"
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    except OSError:  # a system without IPv6
        made, anywhere = socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0"
    try:
        made.bind((anywhere, port))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: it was to be free of others like it
    except OSError:
        made.close()
        raise
    return made


def reserve_message(
    address: str, interface: str | None, ports: Sequence[int], count: int, wants_store: bool
) -> Message:
    """Ask for ``count`` ports of ``ports``, and for torch's store at another, if torch is there.

    ``address`` is that of the agent's host; the agent finds it if empty.
    """
    return {
        "t": "reserve",
        "address": address,
        "interface": interface or "",
        "low": ports[0],
        "high": ports[-1],
        "count": count,
        "store": wants_store,
    }


def answer(message: Message) -> tuple[list[ReservedPort], ReservedPort | None, Message]:
    """Do what a ``reserve`` message asks for; return rank 0's ports, torch's store's if there is one, and the answer.

    Raises:
        ProtocolError: it is malformed.
        OSError: not as many ports are free.
        LaunchError: this host has no such interface.
    """
    low, high = (protocol.int_of(message, key, 0, 65535) for key in ("low", "high"))
    count = protocol.int_of(message, "count", 1, MAX_PORTS)
    if low > high:
        raise ProtocolError(f"reserve: no ports from {low} to {high}")
    interface = protocol.text_of(message, "interface")
    address = protocol.text_of(message, "address") or _own_address(interface)
    ports = range(low, high + 1)
    reserved = [ReservedPort(ports[::-1]) for _ in range(count)]  # the last ones: engines take the first
    of_store = ReservedPort(ports) if message.get("store") is True and torch_store.is_possible() else None
    numbers = [each.port for each in reserved]
    store_port = 0 if of_store is None else of_store.port
    return reserved, of_store, {"t": "reserved", "address": address, "ports": numbers, "store_port": store_port}


def meeting_of(message: Message) -> Meeting:
    """The content of a ``reserved`` message; ProtocolError if it is malformed."""
    ports = message.get("ports")
    if not isinstance(ports, list) or not 1 <= len(ports) <= MAX_PORTS:
        raise ProtocolError(f"reserved: ports must be a list, not {ports!r:.80}")
    found = [protocol.int_of({**message, "port": port}, "port", 1, 65535) for port in ports]
    store_port = protocol.int_of(message, "store_port", 0, 65535) or None
    address = protocol.text_of(message, "address")
    return Meeting(address, found[0], found[1] if len(found) > 1 else None, store_port)


def _own_address(interface: str) -> str:
    """The address of the interface, or, without one, that of the launcher's ssh connection."""
    if interface:
        from ciranda.launch.store import interface_addresses  # not in the standard library alone

        return interface_addresses(interface.partition(",")[0])[0]
    came_by = os.environ.get("SSH_CONNECTION", "").split()
    return came_by[2] if len(came_by) == 4 else socket.gethostname()
