"""How process groups are formed: under `ciranda run`, under torchrun, and of some of the ranks."""

from __future__ import annotations

import importlib
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed

from ciranda import _basics, _core
from ciranda.torch.distributed.process_group import ProcessGroup
from ciranda.torch.functions import broadcast_object

# Its own annotations leave much of it out.
dist: Any = torch.distributed
Store = Any

_KEY = "ciranda/rendezvous"


class _Formed:
    """What this process hosts for the others, and how many groups it has numbered."""

    store_server: _core.StoreServer | None = None
    n_numbered: int = 0


_formed = _Formed()


def form_group(options: Any, _backend_options: Any = None) -> ProcessGroup:
    """Make the process group that torch asks for, which it does on the group's members only."""
    store, rank, timeout = options.store, options.group_rank, getattr(options, "timeout", None)
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if not _basics.is_initialized():
        _join_circle(store, rank, options.group_size)
    if ranks == list(range(_basics.size())):
        return ProcessGroup(rank, ranks, 0, timeout)
    # Its lowest member numbers the group, so that the same ranks may form several.
    if ranks[rank] == min(ranks):
        store.set("ciranda/number", str(_formed.n_numbered))
        _formed.n_numbered += 1
    number = int(store.get("ciranda/number"))
    return ProcessGroup(rank, ranks, _basics.engine().form_set(sorted(ranks), number), timeout)


def answer_for_the_environment() -> None:
    """Under `ciranda run`, find the store of `init_process_group()` in the circle.

    torch's way of finding it, by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, is left alone where RANK is set.
    """
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    of_torch: Callable[..., Iterator[tuple[Store, int, int]]] = handlers["env"]

    def handler(url: str, timeout: timedelta, **options: Any) -> Iterator[tuple[Store, int, int]]:
        if "RANK" in os.environ or "CIRANDA_RANK" not in os.environ:
            yield from of_torch(url, timeout=timeout, **options)
        else:
            yield _store_of_circle(timeout), _basics.rank(), _basics.size()

    handlers["env"] = handler


def _store_of_circle(timeout: timedelta) -> Store:
    """Torch's store, which rank 0 of the circle hosts at the address by which its peers know it."""
    _basics.init()
    store = None
    if _basics.rank() == 0:
        store = dist.TCPStore("0.0.0.0", 0, None, is_master=True, timeout=timeout, wait_for_workers=False)
    port = broadcast_object(None if store is None else store.port, root_rank=0)
    if store is None:
        host = _basics.engine().peer(0)["address"].rpartition(":")[0].strip("[]")
        store = dist.TCPStore(host or "127.0.0.1", port, None, is_master=False, timeout=timeout)
    return store


def _join_circle(store: Store, rank: int, size: int) -> None:
    """Join the circle: the launcher's, or one that is found through torch's store."""
    if "CIRANDA_STORE" in os.environ or size == 1:
        _basics.init()
        return
    if rank == 0:
        _host_rendezvous(store, size)
    where, job, secret = store.get(_KEY).decode().split()
    with tempfile.TemporaryDirectory(prefix="ciranda-") as folder:
        secret_file = Path(folder) / "secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(secret)
        of_torchrun = {
            "CIRANDA_RANK": str(rank),
            "CIRANDA_SIZE": str(size),
            "CIRANDA_LOCAL_RANK": os.environ.get("LOCAL_RANK", "0"),
            "CIRANDA_LOCAL_SIZE": os.environ.get("LOCAL_WORLD_SIZE", "1"),
            "CIRANDA_CROSS_RANK": os.environ.get("GROUP_RANK", "0"),
            "CIRANDA_CROSS_SIZE": os.environ.get("GROUP_WORLD_SIZE", "1"),
            "CIRANDA_STORE": where,
            "CIRANDA_JOB": job,
            "CIRANDA_SECRET_FILE": str(secret_file),
        }
        os.environ.update(of_torchrun)
        try:
            _basics.init()
        finally:
            for name in of_torchrun:
                del os.environ[name]


def _host_rendezvous(store: Store, size: int) -> None:
    secret, job = secrets.token_hex(32), secrets.token_hex(8)
    server = _formed.store_server = _core.StoreServer(["0.0.0.0"], 0, secret, size, job)
    name = os.environ.get("MASTER_ADDR", "127.0.0.1")
    address = socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    store.set(_KEY, f"{address}:{server.port} {job} {secret}")


def _forget() -> None:
    _formed.n_numbered = 0
    if _formed.store_server is not None:
        _formed.store_server.close()
        _formed.store_server = None


_basics.at_end.append(_forget)
