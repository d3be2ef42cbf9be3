"""A communication hook for DistributedDataParallel that averages gradients in place."""

# Without `from __future__ import annotations`: DDP compares the annotations of a hook with types.

import importlib
from typing import Any

import torch
import torch.distributed

from ciranda._basics import world
from ciranda.errors import InvalidArgumentError
from ciranda.torch.distributed.process_group import ProcessGroup
from ciranda.torch.tensors import allocate_shared

# Its own annotations leave much of it out.
dist: Any = torch.distributed
_reference_to: Any = importlib.import_module("torch.multiprocessing.reductions").StorageWeakRef
_CAN_MOVE = hasattr(torch.UntypedStorage, "_swap_data_ptr_")

#: Smaller buckets gain nothing.
_MIN_BYTES = 64 * 1024


class _Seen:
    """The number of uses of each bucket in this world, by the address of torch's record of its memory.

    The weak reference to that record keeps its address from being used again.
    """

    def __init__(self) -> None:
        self._by_address: dict[int, list[Any]] = {}
        self._epoch = -1

    def count(self, storage: torch.UntypedStorage) -> int:
        """Return the number of uses of the bucket, with this one."""
        if self._epoch != world.epoch:
            self._by_address.clear()
            self._epoch = world.epoch
        found = self._by_address.get(storage._cdata)
        if found is None:
            self._by_address = {key: each for key, each in self._by_address.items() if not each[0].expired()}
            found = self._by_address[storage._cdata] = [_reference_to(storage), 0]
        found[1] += 1
        return int(found[1])


_seen = _Seen()


def ddp_comm_hook(group: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients, from its second use on in memory that the ranks share.

        model = DistributedDataParallel(module, gradient_as_bucket_view=True)
        model.register_comm_hook(None, ciranda.torch.distributed.ddp_comm_hook)

    All ranks must register it. The result of a gradient is bit for bit that of DDP without it, except for the order of
    sum and division.

    Args:
        group: of the backend ciranda; None is the default one. Memory is shared if the group has all ranks, they are on
            one host with room in /dev/shm, and torch can move tensors' memory (2.13 can). Gradients on GPUs stay there.
        bucket: DDP's argument.

    Raises:
        InvalidArgumentError: the group is of another backend.
    """
    chosen = dist.group.WORLD if group is None else group
    if not isinstance(chosen, ProcessGroup):
        raise InvalidArgumentError(f"ddp_comm_hook needs a group of the backend ciranda, not {chosen!r}")
    gradients = bucket.buffer()
    if chosen.is_whole_world and _CAN_MOVE:
        _share_when_due(gradients)
    return chosen.average(gradients).future_for_ddp().then(_first)


def _first(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return done.value()[0]


def _share_when_due(gradients: torch.Tensor) -> None:
    """Move the bucket, and all views of it, into memory that the ranks share at its second use.

    DDP creates other buckets after its first step. All of this is the same on all ranks.
    """
    storage = gradients.untyped_storage()
    if gradients.is_cuda or storage.nbytes() < _MIN_BYTES or _seen.count(storage) != 2:
        return
    memory, is_shared = allocate_shared(storage.nbytes())
    if is_shared:
        memory.view(gradients.dtype).copy_(gradients)
        storage._swap_data_ptr_(memory.untyped_storage())  # type: ignore[attr-defined]
