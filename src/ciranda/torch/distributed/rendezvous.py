"""How process groups are formed: under `ciranda run`, under torchrun, and of some of the ranks."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed
from torch.distributed.constants import default_pg_timeout

from ciranda import _basics, _init, _line
from ciranda._loopback import loopback_address
from ciranda.errors import InvalidArgumentError
from ciranda.torch.distributed import formed_sets
from ciranda.torch.distributed.ended_wrappers import detach_wrappers
from ciranda.torch.distributed.joining import meet, start_timeout
from ciranda.torch.distributed.other_libraries import forget_group
from ciranda.torch.distributed.process_group import ProcessGroup
from ciranda.torch.functions import broadcast_object

# Its own annotations leave much of it out.
dist: Any = torch.distributed
Store = Any


def form_group(options: Any, _backend_options: Any = None) -> ProcessGroup:
    """Create the process group that torch requests, which it does on the group's members only."""
    rank, timeout = options.group_rank, getattr(options, "timeout", None)
    is_default = not options.global_ranks_in_group
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    store = dist.PrefixStore(formed_sets.next_place(options.group_id, ranks), options.store)
    if not _basics.is_initialized():
        _join_world(options, timeout or default_pg_timeout)
    if is_default:
        _check_default_group(rank, options.group_size)
        return ProcessGroup(rank, ranks, 0, timeout, store)
    # Its lowest member numbers the group, so that the same ranks may form several: calls are matched within each.
    if ranks[rank] == min(ranks):
        store.set("number", str(formed_sets.next_number()))
    number = int(store.get("number"))
    return ProcessGroup(rank, ranks, _basics.engine().form_set(sorted(ranks), number), timeout, store)


def answer_for_the_environment() -> None:
    """Under `ciranda run`, find the store of `init_process_group()` where the launcher hosts it, or in the world.

    torch's own lookup, by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, is unchanged if RANK is set and the launcher
    hosts none, or has started other ranks than these. In an elastic job rank 0 of each world hosts the store of that
    world, whose processes have not met equally often.
    """
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    of_torch: Callable[..., Iterator[tuple[Store, int, int]]] = handlers["env"]

    def handler(url: str, timeout: timedelta, **options: Any) -> Iterator[tuple[Store, int, int]]:
        if _line.line() is not None:
            yield _store_of_world(timeout), _basics.rank(), _basics.size()
        elif "CIRANDA_TORCH_STORE" in os.environ and _is_of_all_ranks(url):
            yield _store_of_launcher(timeout), int(os.environ["CIRANDA_RANK"]), int(os.environ["CIRANDA_SIZE"])
        elif "RANK" in os.environ or "CIRANDA_RANK" not in os.environ:
            yield from of_torch(url, timeout=timeout, **options)
        else:
            yield _store_of_world(timeout), _basics.rank(), _basics.size()

    handlers["env"] = handler


def _is_of_all_ranks(url: str) -> bool:
    """Whether the ranks that meet are the launcher's: not some of them, nor those that another launcher has started."""
    told = dict(parse_qsl(urlparse(url).query))
    mine = (told.get("rank", os.environ.get("RANK")), told.get("world_size", os.environ.get("WORLD_SIZE")))
    return mine == (os.environ.get("CIRANDA_RANK"), os.environ.get("CIRANDA_SIZE"))


#: How often this process has met others in the launcher's store.
_meetings = itertools.count()


def _store_of_launcher(timeout: timedelta) -> Store:
    """Torch's store, which outlives process groups: each meeting has a part of its own, without entries of the last."""
    host, _, port = os.environ["CIRANDA_TORCH_STORE"].rpartition(":")
    store = dist.TCPStore(host.strip("[]"), int(port), None, is_master=False, timeout=timeout)
    return dist.PrefixStore(f"meeting {next(_meetings)}", store)


def _store_of_world(timeout: timedelta) -> Store:
    """Torch's store, which rank 0 of the world hosts at the address by which its peers know it."""
    _init.init()
    _basics.engine()  # there is none in an elastic job before training: this says so
    timeout = max(timeout, start_timeout())  # of groups whose collectives may take less
    if _basics.rank() == 0:
        return _host_store(timeout)
    port, error = broadcast_object(None, root_rank=0)
    if port is None:
        raise RuntimeError(f"init_process_group(): rank 0 could not host torch's store: {error}")
    host = _basics.engine().peer(0)["address"].rpartition(":")[0].strip("[]")
    # It listens there already, unless rank 0 has died since: torch would try until the end of the groups' own timeout.
    store = dist.TCPStore(host or loopback_address(), port, None, is_master=False, timeout=start_timeout())
    store.set_timeout(timeout)
    return store


def _host_store(timeout: timedelta) -> Store:
    """Host torch's store, and send the others its port, or the reason why there is none."""
    try:
        store = dist.TCPStore("0.0.0.0", 0, None, is_master=True, timeout=timeout, wait_for_workers=False)
    except Exception as error:
        broadcast_object((None, str(error)), root_rank=0)
        raise
    broadcast_object((store.port, ""), root_rank=0)
    return store


def _join_world(options: Any, timeout: timedelta) -> None:
    """Join the world: the launcher's, or one that is found through torch's store, of the default group's ranks."""
    if "CIRANDA_STORE" not in os.environ and options.group_size > 1:
        if dist.is_initialized() and options.group_size < dist.get_world_size():
            raise InvalidArgumentError(
                f"new_group() of {options.group_size} of {dist.get_world_size()} ranks: its members alone cannot join "
                "the world of all; call ciranda.init() on every rank first"
            )
        _init.meet_at(meet(options.store, options.group_rank, options.group_size, timeout))
    _init.init()


def _check_default_group(rank: int, size: int) -> None:
    world = (_basics.rank(), _basics.size())
    if (rank, size) != world:
        raise InvalidArgumentError(
            f"init_process_group(): this process is rank {rank} of {size}, but it is in a world already, as rank "
            f"{world[0]} of {world[1]}: call init_process_group() before ciranda.init(), or ciranda.shutdown() first"
        )


def _end_groups() -> None:
    """End the groups of an elastic training's last world, and the wrappers of models that use them."""
    if dist.is_initialized() and isinstance(dist.group.WORLD, ProcessGroup):
        dist.destroy_process_group()
    if not dist.is_initialized():
        detach_wrappers()
        forget_group()


_basics.between_worlds.append(_end_groups)
