"""A TCP port of this host that is kept for rank 0's torch.distributed.TCPStore, and the address of this host.

A store of torch's is made by rank 0 itself, at a port that all ranks have been told before. So that nobody else takes
it meanwhile (another job on this host, a socket that asks for any port), the agent keeps a socket bound to it for as
long as the job lasts. It does not listen, and has SO_REUSEADDR: the system then lets another socket with SO_REUSEADDR
listen there, as torch's has, but gives the port to nobody who asks for any. Standard library only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from ciranda.launch import protocol
from ciranda.launch.errors import ProtocolError
from ciranda.launch.protocol import Message


class ReservedPort:
    """Owns the socket. Nothing is ever received there."""

    def __init__(self, ports: Sequence[int]) -> None:
        """Reserve the last of ``ports`` that is free (0: any), since engines take the first; OSError if none is."""
        failure = OSError("there is no port to choose from")
        for port in reversed(ports):
            try:
                self._socket = _bound(port)
            except OSError as error:
                failure = error
            else:
                self.port: int = self._socket.getsockname()[1]
                return
        raise failure

    def close(self) -> None:
        """Give it back."""
        self._socket.close()


def _bound(port: int) -> socket.socket:
    """A socket bound to the port on every address, which nobody else has."""
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


def reserve_message(address: str, interface: str | None, ports: Sequence[int]) -> Message:
    """Ask for a port of ``ports``. ``address`` is that of the agent's host; where it is empty, the agent finds it."""
    return {
        "t": "reserve",
        "address": address,
        "interface": interface or "",
        "low": ports[0],
        "high": ports[-1],
    }


def answer(message: Message) -> tuple[ReservedPort, Message]:
    """Do what a ``reserve`` message asks for.

    Raises:
        ProtocolError: it is malformed.
        OSError: no port is free.
        LaunchError: this host has no such interface.
    """
    low, high = (protocol.int_of(message, key, 0, 65535) for key in ("low", "high"))
    if low > high:
        raise ProtocolError(f"reserve: no ports from {low} to {high}")
    interface = protocol.text_of(message, "interface")
    address = protocol.text_of(message, "address") or _own_address(interface)
    reserved = ReservedPort(range(low, high + 1))
    return reserved, {"t": "reserved", "address": address, "port": reserved.port}


def _own_address(interface: str) -> str:
    """The address of the interface, or, without one, that by which the launcher's ssh has come."""
    if interface:
        from ciranda.launch.store import interface_addresses  # not in the standard library alone

        return interface_addresses(interface.partition(",")[0])[0]
    came_by = os.environ.get("SSH_CONNECTION", "").split()
    return came_by[2] if len(came_by) == 4 else socket.gethostname()
