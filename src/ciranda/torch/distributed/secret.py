"""The secret of ranks that meet at torch's store, which whoever can connect to it can read and change.

Ranks of one machine find it in a file in memory of rank 0's, which the system lets their user alone open: the store
says where. Ranks of several machines each have it in CIRANDA_SECRET_FILE. The store carries it only if every rank is
told to trust the store, which each decides by its own environment: who can write to the store does not.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ciranda.engines.local_ranks import host_id
from ciranda.errors import InvalidArgumentError
from ciranda.launch.shared_file import secret_file

FILE = "CIRANDA_SECRET_FILE"
TRUST = "CIRANDA_TRUST_TORCH_STORE"

_HEX_DIGITS = 64
_IN_MEMORY = re.compile(r"/proc/[0-9]+/fd/[0-9]+")
_HOW_TO_GIVE_ONE = (
    f"make a secret by `(umask 077; openssl rand -hex 32 > FILE)`, copy it to each machine, and set {FILE}=FILE on all "
    "ranks; or start the job with 'ciranda run', which needs no such file"
)


def claim(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what rank 0 has to know of this rank to choose a way for the secret."""
    return {"machine": machine(), "has_secret": bool(environ.get(FILE)), "trusts": trusts(environ)}


def machine() -> str:
    """Return what tells this machine from all others, and processes that see each other there from the rest."""
    return f"{host_id()} {os.readlink('/proc/self/ns/pid')}"


def trusts(environ: Mapping[str, str]) -> bool:
    """Return whether this rank may send the secret through torch's store, and take it from there."""
    return environ.get(TRUST) == "1"


def offer(claims: Sequence[Mapping[str, Any]], store: str, environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the job's secret, on rank 0, and what `store`, named in words, is to say of it.

    Raises:
        InvalidArgumentError: there is no safe way; the message has the remedy.
    """
    lack = [str(rank) for rank, each in enumerate(claims) if not each.get("has_secret")]
    if len(lack) < len(claims):
        if lack:
            raise InvalidArgumentError(f"{FILE} is set on some ranks, but not on rank {', '.join(lack)}")
        return _read(environ[FILE]), {"secret_in": FILE}
    secret = secrets.token_hex(_HEX_DIGITS // 2)
    if len({each.get("machine") for each in claims}) == 1:
        return secret, {"secret_at": secret_file(secret).path}
    if not trusts(environ) or not all(each.get("trusts") for each in claims):
        raise InvalidArgumentError(
            f"the ranks are on several machines, and have no secret by which they know each other. {store} has no "
            f"authentication: whoever can connect to it could read a secret there, so that none is sent through it. "
            f"Either {_HOW_TO_GIVE_ONE}; or set {TRUST}=1 on all ranks, if nobody else can connect to that store"
        )
    warnings.warn(
        f"{TRUST}=1: the secret of this job goes through {store}, which has no authentication: whoever can connect to "
        "it can take part in this job, and run code in its ranks",
        RuntimeWarning,
        stacklevel=2,
    )
    return secret, {"secret": secret}


def accept(answer: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return a file with the secret, by what the store says of it, which somebody else may have written.

    Raises:
        InvalidArgumentError: it cannot be had, or is not to be taken from there.
    """
    if answer.get("secret_in") == FILE and environ.get(FILE):
        return environ[FILE]
    if _IN_MEMORY.fullmatch(str(answer.get("secret_at"))):
        return secret_file(_of_other(answer["secret_at"])).path
    if "secret" in answer and trusts(environ):
        return secret_file(str(answer["secret"])).path
    raise InvalidArgumentError(
        f"what torch's store says of this job's secret is not taken from there by this rank: set {FILE}, or "
        f"{TRUST}=1, on all ranks or on none"
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{FILE}={path}: {getattr(error, 'strerror', '') or error}") from None


def _of_other(path: str) -> str:
    """Return what is in a file that a process of this user has, and that nobody else may read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidArgumentError(
            f"rank 0 keeps this job's secret in {path}, which this rank cannot open ({error.strerror}): do all ranks "
            f"run as the same user? Or {_HOW_TO_GIVE_ONE}"
        ) from None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise InvalidArgumentError(
                f"torch's store says that this job's secret is in {path}, which is no file that only this user can "
                "read: somebody else may have written that"
            )
        return file.read(_HEX_DIGITS).decode("ascii", "replace")
