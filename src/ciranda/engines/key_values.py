"""Joining the world by the key-value space that mpiexec of MPICH and Intel MPI serves (PMI-1).

No file and no MPI is needed. Every rank puts a claim with a public key; rank 0 hosts the rendezvous, and puts an answer
and, for each rank, the job's secret under that rank's key: mpiexec prints what it serves if it is told to (-verbose),
and sends it unencrypted between hosts.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ciranda import _core
from ciranda.engines import rendezvous
from ciranda.engines.identity import Identity, identity, number_of
from ciranda.engines.loaded_mpi import is_initialized
from ciranda.engines.pmi import Pmi
from ciranda.engines.sealing import seal
from ciranda.errors import InvalidArgumentError, TimeoutError

_DESCRIPTOR = "PMI_FD"
_FINALIZE_SECONDS = 5.0

#: The process that is to finalize the connection at its end.
_users: list[int] = []


def by_key_values(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's settings, agreed on over PMI. REQUIRES: identity(environ) is not None.

    Raises:
        InvalidArgumentError: there is no connection to mpiexec, or it is not served any more.
        TimeoutError: not all ranks came within CIRANDA_START_TIMEOUT.
    """
    found = identity(environ)
    assert found is not None
    seconds = float(_core.effective_settings()["CIRANDA_START_TIMEOUT"])
    pmi = Pmi(number_of(environ, _DESCRIPTOR), seconds)
    if not _users:
        _users.append(os.getpid())
    key = _core.KeyAgreement()
    pmi.publish(f"claim-{found.rank}", {"key": key.public_key.hex(), **rendezvous.claim(found.local_rank)})
    _fence(pmi, found, seconds)
    if found.rank == 0:
        _answer_all(pmi, found.size, key)
    _fence(pmi, found, seconds)
    answer = _answer_to(pmi, found, key)
    return rendezvous.told(found.rank, found.size, answer)


def _fence(pmi: Pmi, found: Identity, seconds: float) -> None:
    try:
        pmi.fence()
    except TimeoutError:
        raise TimeoutError(
            f"init() of rank {found.rank} of {found.size}: not all {found.size} processes that mpiexec has started "
            f"have called init() within {seconds:g} s; mpiexec does not say which. CIRANDA_START_TIMEOUT sets the time"
        ) from None


def _answer_all(pmi: Pmi, size: int, key: _core.KeyAgreement) -> None:
    claims = [pmi.lookup(f"claim-{rank}") for rank in range(size)]
    try:
        answer = rendezvous.host(claims)
    except InvalidArgumentError as error:
        pmi.publish("answer", rendezvous.failure(error))
        return
    secret, numbers = bytes.fromhex(answer.pop("secret")), answer.pop("numbers")
    pmi.publish("answer", {"key": key.public_key.hex(), **answer})
    for rank, (claim, its_numbers) in enumerate(zip(claims, numbers, strict=True)):
        sealed = seal(secret, key, bytes.fromhex(claim["key"]))
        pmi.publish(f"answer-{rank}", {"sealed": sealed.hex(), "numbers": its_numbers})


def _answer_to(pmi: Pmi, found: Identity, key: _core.KeyAgreement) -> dict[str, Any]:
    answer: dict[str, Any] = pmi.lookup("answer")
    rendezvous.raise_failure(found.rank, found.size, answer)
    mine = pmi.lookup(f"answer-{found.rank}")
    secret = seal(bytes.fromhex(mine["sealed"]), key, bytes.fromhex(answer["key"]))
    return {**answer, "secret": secret.hex(), "numbers": {found.rank: mine["numbers"]}}


@atexit.register
def _finalize() -> None:
    """Let mpiexec wait for the others. After an error it ends them instead, as it does if this process is killed."""
    if _users != [os.getpid()] or is_initialized() or getattr(sys, "last_value", None) is not None:
        return
    with suppress(InvalidArgumentError, TimeoutError):
        Pmi(number_of(os.environ, _DESCRIPTOR), _FINALIZE_SECONDS).finalize()
