"""Joining the world under PaddlePaddle's launcher, which gives each rank the addresses of all.

Rank 0 hosts the rendezvous at its own endpoint, the first one. Ranks authenticate by a secret, which Paddle's launcher
does not distribute: it is in a file that all ranks can read.
"""

from __future__ import annotations

import atexit
import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ciranda import _core
from ciranda.engines.identity import number_of
from ciranda.engines.local_ranks import Claim, local_ranks
from ciranda.errors import InvalidArgumentError

_HOW_TO_MAKE_A_SECRET = (
    "make a file that all ranks can read, and nobody else, by `(umask 077; openssl rand -hex 32 > FILE)`, and start "
    "the job with CIRANDA_SECRET_FILE=FILE; or start it with 'ciranda run -np N COMMAND', which needs no such file"
)

#: What rank 0 hosts, for as long as it lives: the ranks find each other there again after a failure.
_servers: dict[str, _core.StoreServer] = {}


def by_endpoints(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's settings from the variables of Paddle's launcher.

    Raises:
        InvalidArgumentError: its variables contradict each other; or there is no secret: the message has the remedy.
    """
    size, rank, endpoints = _read(environ)
    path = environ.get("CIRANDA_SECRET_FILE", "")
    if not path:
        raise InvalidArgumentError(
            f"PADDLE_TRAINERS_NUM={size} says that Paddle's launcher has started {size} processes, which can meet at "
            f"{endpoints[0]}, but there is no secret by which they know each other: {_HOW_TO_MAKE_A_SECRET}"
        )
    job = hashlib.sha256(",".join(endpoints).encode()).hexdigest()[:16]
    host, port = endpoints[0].rsplit(":", 1)
    address = _address_of(host)
    if rank == 0:
        _host(address, int(port), path, size, job)
    numbers = local_ranks([Claim(each.rsplit(":", 1)[0]) for each in endpoints])[rank]
    told = {f"CIRANDA_{name.upper()}": str(value) for name, value in asdict(numbers).items()}
    return told | {
        "CIRANDA_RANK": str(rank),
        "CIRANDA_SIZE": str(size),
        "CIRANDA_STORE": f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
        "CIRANDA_JOB": job,
        "CIRANDA_SECRET_FILE": path,
    }


def _read(environ: Mapping[str, str]) -> tuple[int, int, Sequence[str]]:
    size, rank = (number_of(environ, name) for name in ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"))
    endpoints = environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    if len(endpoints) != size or len(set(endpoints)) != size or not 0 <= rank < size:
        raise InvalidArgumentError(
            f"init() cannot join by Paddle's variables: PADDLE_TRAINERS_NUM={size} and PADDLE_TRAINER_ID={rank} do not "
            f"fit the {len(endpoints)} endpoints of PADDLE_TRAINER_ENDPOINTS={','.join(endpoints)}"
        )
    wrong = [each for each in endpoints if not each.rpartition(":")[2].isdigit() or not each.rpartition(":")[0]]
    if wrong:
        raise InvalidArgumentError(f"PADDLE_TRAINER_ENDPOINTS: {wrong[0]!r} is not HOST:PORT")
    return size, rank, endpoints


def _address_of(host: str) -> str:
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgumentError(f"PADDLE_TRAINER_ENDPOINTS: there is no host {host}: {error}") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def _host(address: str, port: int, path: str, size: int, job: str) -> None:
    if job in _servers:
        return
    try:
        secret = Path(path).read_text(encoding="ascii").strip()
    except OSError as error:
        raise InvalidArgumentError(f"CIRANDA_SECRET_FILE={path}: {error.strerror}") from None
    _servers[job] = _core.StoreServer([address], port, secret, size, job)


@atexit.register
def _close() -> None:
    while _servers:
        _servers.popitem()[1].close()
