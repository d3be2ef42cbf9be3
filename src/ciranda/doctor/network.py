"""Names, interfaces, ports, and a connection that is really made."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import psutil

from ciranda._loopback import loopback_address
from ciranda.doctor.finding import Finding
from ciranda.launch.errors import LaunchError
from ciranda.launch.store import parse_port_range

_SLOW_LOOKUP_SECONDS = 1.0
_UNPACED = ("cubic", "reno")


def host_name() -> Iterator[Finding]:
    """Whether this host's own name leads to an address, and fast."""
    name = socket.gethostname()
    start = time.monotonic()
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        advice = "add it to /etc/hosts; jobs on this host alone run without it"
        yield Finding("host name", "warn", f"{name} has no address: {error.strerror}", advice)
        return
    seconds = time.monotonic() - start
    text = f"{name} is {', '.join(addresses)}, found in {seconds * 1000:.0f} ms"
    if seconds > _SLOW_LOOKUP_SECONDS:
        yield Finding("host name", "warn", text, "a slow lookup: add the name to /etc/hosts, or mend the name server")
    elif all(address.startswith("127.") or address == "::1" for address in addresses):
        advice = "it leads only to loopback: name this host by its address when ranks run on other hosts as well"
        yield Finding("host name", "warn" if _has_other_interface() else "ok", text, advice)
    else:
        yield Finding("host name", "ok", text)


def interfaces() -> Iterator[Finding]:
    """Each interface that is up: addresses, speed, MTU."""
    states = psutil.net_if_stats()
    for name, entries in sorted(psutil.net_if_addrs().items()):
        state = states.get(name)
        addresses = [entry.address for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)]
        if state is None or not state.isup or not addresses:
            continue
        speed = f", {state.speed / 1000:g} Gbit/s" if state.speed else ""
        text = f"{', '.join(addresses)}; MTU {state.mtu}{speed}"
        if 0 < state.speed < 1000:
            yield Finding(f"interface {name}", "warn", text, "below 1 Gbit/s: choose another with --network-interface")
        else:
            yield Finding(f"interface {name}", "ok", text)


def _has_other_interface() -> bool:
    return any(
        entry.family == socket.AF_INET and not entry.address.startswith("127.")
        for entries in psutil.net_if_addrs().values()
        for entry in entries
    )


def loopback() -> Iterator[Finding]:
    """Connect to ourselves, send, and receive the same."""
    text = os.urandom(16)
    address = loopback_address()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.create_server((address, 0), family=family) as server:
            server.settimeout(2.0)
            start = time.perf_counter()
            with socket.create_connection(server.getsockname()[:2], timeout=2.0) as client:
                accepted, _ = server.accept()
                with accepted:
                    accepted.settimeout(2.0)
                    client.sendall(text)
                    received = accepted.recv(len(text), socket.MSG_WAITALL)
            seconds = time.perf_counter() - start
    except OSError as error:
        advice = "ranks and launcher use loopback: bring it up (ip link set lo up) and allow it in the firewall"
        yield Finding("loopback", "fail", f"a connection to {address} failed: {error}", advice)
        return
    if received != text:
        yield Finding("loopback", "fail", f"data sent to {address} was received changed", "look for a proxy in between")
    else:
        yield Finding("loopback", "ok", f"connected, sent and received in {seconds * 1e6:.0f} us")


def ports() -> Iterator[Finding]:
    """The range given in CIRANDA_PORT_RANGE: how many are free. Without one, whether the system gives any."""
    text = os.environ.get("CIRANDA_PORT_RANGE", "")
    try:
        wanted = parse_port_range(text) if text else range(1)
    except LaunchError as error:
        yield Finding("ports", "fail", str(error), "unset CIRANDA_PORT_RANGE or write low-high")
        return
    free = sum(_is_free(port) for port in wanted)
    if not text and free:
        yield Finding("ports", "ok", "any free port may be used")
    elif free == len(wanted):
        yield Finding("ports", "ok", f"{free} of {len(wanted)} free in CIRANDA_PORT_RANGE={text}")
    elif free:
        found = f"{free} of {len(wanted)} free in CIRANDA_PORT_RANGE={text}"
        yield Finding("ports", "warn", found, "each rank and the launcher take one: widen the range if need be")
    else:
        advice = "end the processes that use them, or choose others"
        yield Finding("ports", "fail", f"no free port {text and 'in ' + text}", advice)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def congestion_control() -> Iterator[Finding]:
    """What TCP uses unless a program asks for another; bbr paces even loopback, so the engine asks for another."""
    with socket.socket() as probe:
        used = _congestion_control_of(probe)
        better = next((name for name in _UNPACED if _accepts(probe, name)), None)
    if not used.startswith("bbr"):
        yield Finding("congestion control", "ok", used)
    elif better is not None:
        yield Finding("congestion control", "ok", f"{better} for our own connections (the default here is {used})")
    else:
        advice = "it paces even local traffic: load tcp_cubic, or add it to tcp_allowed_congestion_control"
        yield Finding("congestion control", "warn", f"{used}, and none of {', '.join(_UNPACED)} may be chosen", advice)


def _congestion_control_of(probe: socket.socket) -> str:
    return probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()


def _accepts(probe: socket.socket, name: str) -> bool:
    try:
        probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError:
        return False
    return True
