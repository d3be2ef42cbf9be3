"""Joining the world by a communicator of mpi4py, through its own methods: nothing here is linked to MPI."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ciranda._core import KeyAgreement
from ciranda.engines import rendezvous
from ciranda.engines.identity import identity, is_told
from ciranda.engines.loaded_mpi import Communicator, is_null
from ciranda.engines.sealing import seal
from ciranda.errors import InvalidArgumentError, NotSupportedError


def is_described(comm: Communicator, environ: Mapping[str, str]) -> bool:
    """Whether Ciranda's or Horovod's own variables describe the ranks of this communicator.

    Raises:
        InvalidArgumentError: they, or an engine's, contradict it; or this process is not in it.
        NotSupportedError: it is an inter-communicator.
    """
    mpi = sys.modules["mpi4py.MPI"]
    if is_null(comm):
        raise InvalidArgumentError(
            "init(comm=MPI.COMM_NULL): this process is in no communicator; only its members call init()"
        )
    if comm.Is_inter():
        raise NotSupportedError("init(comm=...): this is an inter-communicator; Merge() makes one of a single group")
    size, rank = comm.Get_size(), comm.Get_rank()
    if not is_told(environ):
        found = identity(environ)
        if found is not None and mpi.COMM_WORLD.Get_size() == 1:
            raise InvalidArgumentError(
                f"init(comm=...): MPI says that this process is the only one, but {found.words}: this MPI is not the "
                f"one that has started it. Use the mpiexec of mpi4py's ({mpi.Get_library_version().split(',')[0]}), or "
                "call init() without a communicator"
            )
        return False
    given = {name: environ[f"{of}_{name}"] for of in ("HOROVOD", "CIRANDA") for name in ("RANK", "SIZE")
             if environ.get(f"{of}_{name}")}  # fmt: skip
    told_size, told_rank = given.get("SIZE", "1"), given.get("RANK", "0")
    if (told_size, told_rank) != (str(size), str(rank)):
        raise InvalidArgumentError(
            f"init(comm=...): the communicator says rank {rank} of {size}, but the environment of this process rank "
            f"{told_rank} of {told_size}: start it with mpirun, or call init() without a communicator"
        )
    return True


def by_communicator(comm: Communicator, local_rank: int | None = None) -> dict[str, str]:
    """Return the engine's settings, agreed on by the members of a communicator, all of which call this.

    The secret is sealed for each: MPI sends between hosts what can be read there.

    Raises:
        InvalidArgumentError: rank 0 cannot host the rendezvous.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return {"CIRANDA_ENGINE": "none"}
    answer: dict[str, Any] = {}
    key = KeyAgreement()
    claims = comm.gather({"key": key.public_key, **rendezvous.claim(local_rank)}, root=0)
    if rank == 0:
        try:
            answer = rendezvous.host(claims)
            secret = bytes.fromhex(answer.pop("secret"))
            sealed = [seal(secret, key, each["key"]) for each in claims]
            answer |= {"key": key.public_key, "sealed": sealed}
        except InvalidArgumentError as error:
            answer = rendezvous.failure(error)
    answer = comm.bcast(answer, root=0)
    rendezvous.raise_failure(rank, size, answer)
    secret = seal(answer["sealed"][rank], key, answer["key"])
    return rendezvous.told(rank, size, {**answer, "secret": secret.hex()})
