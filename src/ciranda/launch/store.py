"""Where the ranks find each other: addresses for the rendezvous store, and the store itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from ciranda._loopback import loopback_address
from ciranda.launch.errors import LaunchError
from ciranda.launch.reach import Reach


class Store(Protocol):
    """A running rendezvous store."""

    @property
    def port(self) -> int:
        """Where it listens, on every address."""

    def lose(self, rank: int, why: str) -> None:
        """Have those fail who wait for ``rank``, now or later, as it never comes again: ``why`` says the reason."""

    def close(self) -> None:
        """Stop listening."""


StoreFactory = Callable[[list[str], int, str, int, str], Store]
"""(addresses to bind, port or 0, secret in hex, size of the job, id of the job) -> a store that listens on them all."""


def engine_store(bind: list[str], port: int, secret: str, size: int, job: str) -> Store:
    """The engine's own store server.

    Raises:
        LaunchError: the engine is not built.
        OSError, RuntimeError, ValueError: the store cannot listen there.
    """
    try:
        from ciranda._core import StoreServer  # on hosts that only start ranks there may be no engine
    except ImportError as error:
        raise LaunchError(
            f"the engine cannot be loaded, so ranks cannot find each other: {error}\n"
            f"  install ciranda with 'pip install .', and see 'ciranda doctor'"
        ) from None
    return cast(Store, StoreServer(bind, port, secret, size, job))


def parse_port_range(text: str) -> range:
    """``"low-high"`` or ``"port"`` as a range of ports; LaunchError for anything else."""
    low, dash, high = text.partition("-")
    try:
        ports = range(int(low), int(high if dash else low) + 1)
    except ValueError:
        ports = range(0)
    if not ports or ports[0] < 1 or ports[-1] > 65535:
        raise LaunchError(f"--port-range {text!r}: write low-high, two ports from 1 to 65535", exit_code=2)
    return ports


def start_store(factory: StoreFactory, bind: list[str], ports: range, secret: str, size: int, job: str) -> Store:
    """A store on the first of ``ports`` that is free (0: any).

    Raises:
        LaunchError: none is, or the store cannot listen at all.
    """
    failure: Exception | None = None
    for port in ports:
        try:
            return factory(bind, port, secret, size, job)
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(error, LaunchError):
                raise
            failure = error
    where = "" if ports == range(1) else f", ports {ports[0]} to {ports[-1]}"
    raise LaunchError(f"the rendezvous store cannot listen on {', '.join(bind)}{where}: {failure}")


def bind_addresses(remote_hosts: Sequence[str], reach: Reach, interface: str | None) -> list[str]:
    """This machine's addresses that the ranks can reach: loopback if all are here, else those that face their hosts.

    Raises:
        LaunchError: no address faces a host, or ``interface``, or one of them if there are several by comma, has none.
    """
    if interface is not None:
        return [address for name in interface.split(",") for address in interface_addresses(name)]
    if not remote_hosts:
        return [loopback_address()]
    found: list[str] = []
    for host in remote_hosts:
        name, direct = reach.resolved_name(host)
        candidates = [_facing(host, name)] if direct else all_addresses()
        found += [address for address in candidates if address not in found]
    return found


def candidates(addresses: Sequence[str], port: int) -> str:
    """The value of CIRANDA_STORE."""
    return ",".join(f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses)


def interface_addresses(interface: str) -> list[str]:
    """The addresses of a network interface of this machine, IPv4 first; LaunchError if it is unknown or has none."""
    import psutil

    known = psutil.net_if_addrs()
    if interface not in known:
        raise LaunchError(
            f"--network-interface {interface}: no such interface; this host has {', '.join(sorted(known))}"
        )
    addresses = _internet_addresses(known[interface])
    if not addresses:
        raise LaunchError(f"--network-interface {interface} has no address")
    return addresses


def _internet_addresses(entries: Sequence[object]) -> list[str]:
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for entry in entries:
            address = getattr(entry, "address", "")
            if getattr(entry, "family", None) == family and not address.lower().startswith("fe80"):
                found.append(address)
    return found


def all_addresses() -> list[str]:
    """This machine's addresses, but loopback."""
    import psutil

    return [
        address
        for name, entries in psutil.net_if_addrs().items()
        if name != "lo"
        for address in _internet_addresses(entries)
    ]


def _facing(host: str, name: str) -> str:
    """The address of this machine from which packets to ``name`` would go; nothing is sent."""
    try:
        family, _, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise LaunchError(f"cannot start ranks on {host}: {name} cannot be reached from here: {error}") from None
