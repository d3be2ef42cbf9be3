"""The rendezvous of ranks that an engine has started: rank 0 hosts it, and tells the others by what they share.

Each rank has a claim: its host and, if the engine gives it, its number there. Rank 0 gets all claims, and returns an
answer to all ranks: an address, a secret and the numbers of each. How claims and the answer travel is another module's:
by files, by PMI, or by a communicator of MPI.
"""

from __future__ import annotations

import atexit
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ciranda import _core
from ciranda._loopback import loopback_address
from ciranda.engines.local_ranks import Claim, host_id, local_ranks
from ciranda.errors import InvalidArgumentError, TimeoutError
from ciranda.launch import store as stores
from ciranda.launch.errors import LaunchError
from ciranda.launch.shared_file import SharedFile, secret_file


class _Kept:
    """What this process keeps while it lives, for worlds after a failure."""

    secret: SharedFile | None = None
    server: stores.Store | None = None  # on rank 0


_kept = _Kept()


def claim(local_rank: int | None) -> dict[str, Any]:
    """Return what rank 0 has to know of this rank."""
    return {"host": host_id(), "local_rank": local_rank, "version": _core.__version__}


def host(claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Host the rendezvous of the ranks with these claims, in their order, and return the answer to all of them.

    Raises:
        InvalidArgumentError: rank 0 cannot listen, or a rank has another version of Ciranda.
    """
    require_one_version({f"rank {rank}": _version_of(each) for rank, each in enumerate(claims)})
    secret, job = secrets.token_hex(32), secrets.token_hex(8)
    _close()
    try:
        is_one_machine = len({each["host"] for each in claims}) == 1
        _kept.server, where = open_store(secret, job, len(claims), is_one_machine)
    except LaunchError as error:
        raise InvalidArgumentError(f"rank 0 cannot host the rendezvous: {error}") from None
    numbered = local_ranks([Claim(each["host"], each["local_rank"]) for each in claims])
    return {
        "store": where,
        "job": job,
        "secret": secret,
        "numbers": [asdict(numbers) for numbers in numbered],
    }


def require_one_version(versions: Mapping[str, str]) -> None:
    """Raise InvalidArgumentError if the versions of Ciranda, by the names of who has them, are not one."""
    by_version: dict[str, list[str]] = {}
    for name, version in versions.items():
        by_version.setdefault(version, []).append(name)
    if len(by_version) > 1:
        found = "; ".join(f"{version} on {listed(names)}" for version, names in by_version.items())
        raise InvalidArgumentError(
            f"not all have the same version of Ciranda: {found}. Install one version on all hosts"
        )


def listed(names: Sequence[str]) -> str:
    """Return the names, at most ten of them."""
    return ", ".join(names[:10]) + (" and others" if len(names) > 10 else "")


def _version_of(its_claim: Mapping[str, Any]) -> str:
    return f"{its_claim.get('version', 'an older one')}"


def open_store(secret: str, job: str, size: int, is_one_machine: bool) -> tuple[stores.Store, str]:
    """Open the store of ranks by this process's settings, and return it with its value for CIRANDA_STORE.

    Raises:
        LaunchError: it cannot listen.
    """
    settings = _core.effective_settings()
    interface, port_range = str(settings["CIRANDA_INTERFACE"]), str(settings["CIRANDA_PORT_RANGE"])
    if is_one_machine:
        addresses = [loopback_address()]
    elif interface:
        addresses = [each for name in interface.split(",") for each in _addresses_of(name)]
    else:
        addresses = stores.all_addresses()
    ports = stores.parse_port_range(port_range) if port_range else range(1)
    store = stores.start_store(stores.engine_store, addresses, ports, secret, size, job)
    return store, stores.candidates(addresses, store.port)


def told(rank: int, size: int, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the engine's settings by the answer. The secret is in a file in memory."""
    _kept.secret = secret_file(answer["secret"])
    numbers = answer["numbers"][rank]
    return {f"CIRANDA_{name.upper()}": str(value) for name, value in numbers.items()} | {
        "CIRANDA_RANK": str(rank),
        "CIRANDA_SIZE": str(size),
        "CIRANDA_STORE": answer["store"],
        "CIRANDA_JOB": answer["job"],
        "CIRANDA_SECRET_FILE": _kept.secret.path,
    }


def failure(error: InvalidArgumentError | TimeoutError) -> dict[str, Any]:
    """Return the answer to all ranks if there is no rendezvous."""
    return {"error": str(error), "kind": "timeout" if isinstance(error, TimeoutError) else "other"}


def raise_failure(rank: int, size: int, answer: Mapping[str, Any]) -> None:
    """Raise the error that the answer has, if it has one."""
    if "error" in answer:
        kind = TimeoutError if answer["kind"] == "timeout" else InvalidArgumentError
        raise kind(f"init() of rank {rank} of {size}: {answer['error']}")


def _addresses_of(interface: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(interface))]
    except ValueError:
        return stores.interface_addresses(interface)


@atexit.register
def _close() -> None:
    if _kept.server is not None:
        _kept.server.close()
        _kept.server = None
