"""Joining the world through torch's store, under launchers that set torch's variables.

Every rank puts a claim into the store: its host. Rank 0 waits for all claims, hosts Ciranda's rendezvous, and puts an
answer for each rank into the store: the address, where the job's secret is (secret.py), and the rank's position among
the hosts; or the reason of a failure. Others may have written what is read there: it sets nothing else.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed.rendezvous import rendezvous

from ciranda import _core
from ciranda._loopback import loopback_address
from ciranda.engines.local_ranks import Claim, LocalRanks, host_id, local_ranks
from ciranda.errors import InvalidArgumentError, TimeoutError
from ciranda.launch.store import candidates
from ciranda.torch.distributed import secret

# Its own annotations leave much of it out.
dist: Any = torch.distributed
Store = Any
Told = dict[str, str]

#: What an answer sets.
_TOLD = ("store", "job", *(field.name for field in fields(LocalRanks)))

_ANSWER_SECONDS = 10  # for rank 0 to host the rendezvous, once all have come


class _Met:
    """The rendezvous of this process: kept while it lives, for worlds after a failure."""

    who: tuple[int, int] | None = None  # the rank and size that `told` is for
    told: Told | None = None
    server: _core.StoreServer | None = None  # on rank 0
    store: Store | None = None  # torch's, which rank 0 may host
    n_failures: int = 0


_met = _Met()


@dataclass(frozen=True)
class _Seat:
    """The rank of this process, and its store."""

    store: Store
    rank: int
    size: int
    limit: timedelta


def by_variables() -> Told:
    """The engine's settings if RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT give torch's store."""
    limit = start_timeout()
    where = f"the store of torch.distributed at {os.environ['MASTER_ADDR']}, port {os.environ['MASTER_PORT']}"
    try:
        store, rank, size = next(rendezvous("env://", timeout=limit))
    except ValueError as error:
        raise InvalidArgumentError(f"init() cannot join through torch's variables: {error}") from None
    except RuntimeError as error:
        raise TimeoutError(f"init() did not reach {where} within {limit.total_seconds():g} s: {error}") from None
    _met.store = store
    return meet(dist.PrefixStore("ciranda", store), rank, size, limit)


def by_group() -> Told:
    """The engine's settings if torch.distributed has a default process group."""
    store = dist.PrefixStore("ciranda", dist.distributed_c10d._get_default_store())
    return meet(store, dist.get_rank(), dist.get_world_size(), start_timeout())


def meet(store: Store, rank: int, size: int, limit: timedelta) -> Told:
    """The engine's settings, found through `store`, which all `size` ranks use; the same again in later worlds.

    Raises:
        TimeoutError: a rank did not use the store within `limit`; all other ranks get an error that names it.
        InvalidArgumentError: there is no safe way for the job's secret.
    """
    if _met.told is not None and _met.who == (rank, size):
        return _met.told
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    seat = _Seat(dist.PrefixStore(f"{restart}/{_met.n_failures}", store), rank, size, limit)
    try:
        answer = _claim_and_wait(seat)
    except (InvalidArgumentError, TimeoutError):
        _met.n_failures += 1
        raise
    told = {f"CIRANDA_{name.upper()}": str(answer[name]) for name in _TOLD}
    told |= {"CIRANDA_RANK": str(rank), "CIRANDA_SIZE": str(size)}
    told["CIRANDA_SECRET_FILE"] = secret.accept(answer, os.environ)
    _met.who, _met.told = (rank, size), told
    return told


def start_timeout() -> timedelta:
    """How long ranks wait for each other at the start."""
    return timedelta(seconds=float(_core.effective_settings()["CIRANDA_START_TIMEOUT"]))


# --- claims and answers ---


def _claim_and_wait(seat: _Seat) -> dict[str, Any]:
    """Put this rank's claim into the store and return rank 0's answer to it."""
    mine = {**asdict(_own_claim()), "sees": _seen_address(_host_of(seat.store)), **secret.claim(os.environ)}
    seat.store.set(f"claim/{seat.rank}", json.dumps(mine))
    if seat.rank == 0:
        _answer_all(seat)
    _wait(seat, [0], "claim", seat.limit)
    _wait(seat, [seat.rank], "answer", seat.limit + timedelta(seconds=_ANSWER_SECONDS))
    answer: dict[str, Any] = json.loads(seat.store.get(f"answer/{seat.rank}"))
    if "error" in answer:
        raise (TimeoutError if answer.get("is_timeout") else InvalidArgumentError)(answer["error"])
    return answer


def _answer_all(seat: _Seat) -> None:
    try:
        _wait(seat, range(seat.size), "claim", seat.limit)
        claims = [json.loads(seat.store.get(f"claim/{rank}")) for rank in range(seat.size)]
        answers = _answers(claims, _name_of(seat.store))
    except Exception as error:
        why = json.dumps({"error": f"{error}", "is_timeout": isinstance(error, TimeoutError)})
        for rank in range(seat.size):
            seat.store.set(f"answer/{rank}", why)
        raise
    for rank, answer in enumerate(answers):
        seat.store.set(f"answer/{rank}", json.dumps(answer))


def _answers(claims: Sequence[dict[str, Any]], store: str) -> list[dict[str, Any]]:
    """Host the rendezvous, and return the answer for each rank. `store`: what torch's is called."""
    job = secrets.token_hex(8)
    digits, where = secret.offer(claims, store, os.environ)
    address = _address_for_all(claims)
    try:
        server = _core.StoreServer([address], 0, digits, len(claims), job)
    except (OSError, RuntimeError, ValueError):  # it is not this host's own, as behind a translation of addresses
        server = _core.StoreServer(["0.0.0.0"], 0, digits, len(claims), job)
    _met.server = server
    common = {"store": candidates([address], server.port), "job": job, **where}
    numbered = local_ranks([Claim(claim["host"], claim["local_rank"]) for claim in claims])
    return [{**common, **asdict(numbers)} for numbers in numbered]


def _wait(seat: _Seat, ranks: Sequence[int], what: str, limit: timedelta) -> None:
    """Wait for the entries of these ranks; TimeoutError names the missing ones."""
    try:
        seat.store.wait([f"{what}/{rank}" for rank in ranks], limit)
    except RuntimeError as error:
        missing = [rank for rank in ranks if not _is_there(seat.store, f"{what}/{rank}")]
        if what == "answer" or not missing:
            raise TimeoutError(f"rank {seat.rank} of {seat.size} got no answer from rank 0: {error}") from None
        names = ", ".join(str(rank) for rank in missing[:10]) + (" and others" if len(missing) > 10 else "")
        raise TimeoutError(
            f"init() of rank {seat.rank} of {seat.size}: rank {names} did not come to torch's store within "
            f"{limit.total_seconds():g} s; do all ranks call ciranda.init() or init_process_group()?"
        ) from None


def _is_there(store: Store, key: str) -> bool:
    try:
        return bool(store.check([key]))
    except RuntimeError:  # the store is gone
        return False


# --- where a rank is ---


def _own_claim() -> Claim:
    """Ranks of one torchrun share a host by its variables; under other launchers the machine identifies the host."""
    environ = os.environ
    local_rank = int(environ["LOCAL_RANK"]) if environ.get("LOCAL_RANK", "").isdigit() else None
    if "GROUP_RANK" in environ and "LOCAL_WORLD_SIZE" in environ:
        return Claim(f"group {environ['GROUP_RANK']}", local_rank)
    return Claim(host_id(), local_rank)


def _underlying(store: Store) -> Store:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _host_of(store: Store) -> str:
    """The name of the host where torch's store is, which is rank 0's."""
    host = getattr(_underlying(store), "host", "")
    return str(host or os.environ.get("MASTER_ADDR") or socket.gethostname())


def _name_of(store: Store) -> str:
    """What torch's store is called in messages."""
    port = getattr(_underlying(store), "port", None)
    return "torch's store" if port is None else f"torch's store at {_host_of(store)}, port {port}"


def _seen_address(name: str) -> str:
    """The address that the name has on this host, IPv4 if there is one; empty if there is none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def _address_for_all(claims: Sequence[dict[str, Any]]) -> str:
    """Where all reach rank 0: as ranks on other hosts see it, since its own name may stand for 127.0.0.1 at home."""
    elsewhere = [claim for claim in claims if claim["host"] != claims[0]["host"]]
    return next((claim["sees"] for claim in elsewhere if claim["sees"]), "") or loopback_address()


def _close() -> None:
    if _met.server is not None:
        _met.server.close()
        _met.server = None


atexit.register(_close)
