"""The address by which processes of one host reach each other. Standard library only."""

from __future__ import annotations

import socket


def loopback_address() -> str:
    """``127.0.0.1``; ``::1`` where only that is there, as in some containers."""
    return "127.0.0.1" if _is_usable(socket.AF_INET, "127.0.0.1") or not _is_usable(socket.AF_INET6, "::1") else "::1"


def _is_usable(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
