"""Joining the world by the key-value space that mpiexec of MPICH and Intel MPI serves (PMI-1), or srun (PMI-2, PMIx).

No file and no MPI is needed. Every rank puts a claim with a public key; rank 0 hosts the rendezvous, and puts an answer
and, for each rank, the job's secret under that rank's key: mpiexec prints what it serves if it is told to (-verbose),
and both send it unencrypted between hosts.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ciranda import _core
from ciranda.engines import pmix, rendezvous
from ciranda.engines.identity import Identity, Way, identity, number_of
from ciranda.engines.key_value_space import KeyValueSpace, is_socket
from ciranda.engines.loaded_mpi import is_initialized, is_initialized_without_mpi4py, warn_of_later_mpi
from ciranda.engines.pmi import Pmi
from ciranda.engines.pmi2 import Pmi2
from ciranda.engines.pmix import Pmix
from ciranda.engines.sealing import seal
from ciranda.engines.slurm import numbers_of_node
from ciranda.errors import InvalidArgumentError, TimeoutError

_DESCRIPTOR = "PMI_FD"
_FINALIZE_SECONDS = 5.0

#: The process that is to finalize the connection at its end.
_users: list[int] = []


def is_reached(environ: Mapping[str, str]) -> bool:
    """Whether this process of a job step can reach the key-value space of srun. MPI may have the socket already."""
    if _has_socket(environ):
        return not is_initialized_without_mpi4py()
    return pmix.is_reached(environ)


def _has_socket(environ: Mapping[str, str]) -> bool:
    """Whether this process has the socket of PMI_FD. What a task of srun starts has not, unless it is told to."""
    return bool(environ.get(_DESCRIPTOR)) and is_socket(number_of(environ, _DESCRIPTOR))


def by_key_values(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's settings, agreed on over PMI. REQUIRES: identity(environ) is not None.

    Raises:
        InvalidArgumentError: there is no connection to the manager, or it is not served any more.
        TimeoutError: not all ranks came within CIRANDA_START_TIMEOUT.
    """
    found = identity(environ)
    assert found is not None
    seconds = float(_core.effective_settings()["CIRANDA_START_TIMEOUT"])
    if found.engine.way is Way.STEP and not _has_socket(environ):
        with pmix.connected(environ, seconds) as space:
            return _meet_in_step(found, space, environ)
    descriptor = number_of(environ, _DESCRIPTOR)
    if found.engine.way is Way.STEP:
        return _meet_in_step(found, Pmi2(descriptor, seconds), environ)
    pmi = Pmi(descriptor, seconds)
    if not _users:
        _users.append(os.getpid())
    return _meet(found, pmi, lambda: _fence(pmi, found))


def _meet_in_step(found: Identity, space: Pmi2 | Pmix, environ: Mapping[str, str]) -> dict[str, str]:
    step = _Step(found, space, numbers_of_node(environ))
    told = _meet(found, space, step.fence)
    warn_of_later_mpi(
        f"init() has used {space.words}, which Slurm gives a process once. If MPI cannot begin now, import mpi4py.MPI "
        "before init(), or set CIRANDA_HANDOVER_FOLDER to a folder that all nodes share and only you can enter"
    )
    return told


def _meet(found: Identity, space: KeyValueSpace, fence: Callable[[], None]) -> dict[str, str]:
    key = _core.KeyAgreement()
    space.publish(f"claim-{found.rank}", {"key": key.public_key.hex(), **rendezvous.claim(found.local_rank)})
    fence()
    if found.rank == 0:
        _answer_all(space, found.size, key)
    fence()
    answer = _answer_to(space, found, key)
    return rendezvous.told(found.rank, found.size, answer)


def _fence(space: KeyValueSpace, found: Identity) -> None:
    try:
        space.fence()
    except TimeoutError:
        raise TimeoutError(
            f"init() of rank {found.rank} of {found.size}: not all {found.size} processes that {space.manager} has "
            f"started have called init() within {space.seconds:g} s; {space.manager} does not say which. "
            "CIRANDA_START_TIMEOUT sets the time"
        ) from None


class _Step:
    """The tasks of a job step, which know of each other on the same node before all have come."""

    def __init__(self, found: Identity, space: Pmi2 | Pmix, on_node: Sequence[int]) -> None:
        self._space = space
        self._identity = found
        self._on_node = on_node if space.is_first else ()  # a program before may have told the node
        self._seconds = space.seconds
        if self._on_node:
            space.tell_node("came", found.rank)

    def fence(self) -> None:
        """Wait for all.

        Raises:
            TimeoutError: they did not come; which of this node, as far as that is known.
        """
        rank, size = self._identity.rank, self._identity.size
        try:
            self._space.fence()
        except TimeoutError:
            raise TimeoutError(
                f"init() of rank {rank} of {size}: not all {size} tasks that srun has started have called init() "
                f"within {self._seconds:g} s{self._who()}. CIRANDA_START_TIMEOUT sets the time"
            ) from None

    def _who(self) -> str:
        missing = [str(rank) for rank in self._on_node if not self._space.is_told("came", rank)]
        if missing:
            return f": on node {socket.gethostname()} rank {', '.join(missing)} has not"
        return f"; on node {socket.gethostname()} all have" if self._on_node else ""


def _answer_all(space: KeyValueSpace, size: int, key: _core.KeyAgreement) -> None:
    claims = [space.lookup(f"claim-{rank}", rank) for rank in range(size)]
    try:
        answer = rendezvous.host(claims)
    except InvalidArgumentError as error:
        space.publish("answer", rendezvous.failure(error))
        return
    secret, numbers = bytes.fromhex(answer.pop("secret")), answer.pop("numbers")
    space.publish("answer", {"key": key.public_key.hex(), **answer})
    for rank, (claim, its_numbers) in enumerate(zip(claims, numbers, strict=True)):
        sealed = seal(secret, key, bytes.fromhex(claim["key"]))
        its_answer = {"to": claim["key"], "sealed": sealed.hex(), "numbers": its_numbers}
        space.publish(f"answer-{rank}", its_answer)


def _answer_to(space: KeyValueSpace, found: Identity, key: _core.KeyAgreement) -> dict[str, Any]:
    answer: dict[str, Any] = space.lookup("answer", 0)
    rendezvous.raise_failure(found.rank, found.size, answer)
    mine = space.lookup(f"answer-{found.rank}", 0)
    if mine["to"] != key.public_key.hex():
        raise InvalidArgumentError(
            f"init() of rank {found.rank} of {found.size}: the answer of rank 0 is to a program before this one in the "
            "same task; not all tasks have run it to its end"
        )
    secret = seal(bytes.fromhex(mine["sealed"]), key, bytes.fromhex(answer["key"]))
    return {**answer, "secret": secret.hex(), "numbers": {found.rank: mine["numbers"]}}


@atexit.register
def _finalize() -> None:
    """Let mpiexec wait for the others. After an error it ends them instead, as it does if this process is killed."""
    if _users != [os.getpid()] or is_initialized() or getattr(sys, "last_value", None) is not None:
        return
    with suppress(InvalidArgumentError, TimeoutError):
        Pmi(number_of(os.environ, _DESCRIPTOR), _FINALIZE_SECONDS).finalize()
