"""Memory that the gradients of a group have in common, for DistributedOptimizer(gradient_as_bucket_view=True)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ciranda._basics import engine, world
from ciranda.torch.tensors import allocate_shared, strides_like

Tensor = torch.Tensor

_LINE = 64  # bytes: where each flat tensor begins


class Bucket:
    """One flat tensor for each dtype and device of a group's parameters, and in them a place for each gradient.

    A gradient that autograd has put elsewhere is moved to its place, once a step; autograd then adds to it there. A
    place has the strides of its parameter, which fused optimizers rely on. `share` moves what is on the CPU into
    memory that the engine combines where it lies.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._shapes = [parameter.shape for parameter in parameters]
        #: Those of the parameters, which may have gaps, and those of the places, which have none.
        self._strides_of_parameters = [parameter.stride() for parameter in parameters]
        self._strides = [strides_like(parameter) for parameter in parameters]
        self._places: list[Tensor] = [torch.empty(0, device="cpu")] * len(parameters)
        self.flats: list[Tensor] = []
        #: The members of each flat tensor, in their order.
        self._members: list[list[int]] = []
        kinds = [(parameter.dtype, parameter.device) for parameter in parameters]
        for dtype, device in dict.fromkeys(kinds):
            members = [index for index, kind in enumerate(kinds) if kind == (dtype, device)]
            self._members.append(members)
            self.flats.append(
                torch.zeros(sum(parameters[member].numel() for member in members), dtype=dtype, device=device)
            )
        self._divide()
        #: The world that was asked for shared memory, whether or not it had any; none yet.
        self.asked: int | None = None

    def _divide(self) -> None:
        for flat, members in zip(self.flats, self._members, strict=True):
            sizes = [self._shapes[member].numel() for member in members]
            for member, part in zip(members, torch.split(flat, sizes), strict=True):
                self._places[member] = part.as_strided(self._shapes[member], self._strides[member])

    @property
    def layout(self) -> str:
        """How the gradients lie in memory: ranks with the same parameters must have the same."""
        return ";".join(map(_order, self._shapes, self._strides))

    @property
    def n_bytes(self) -> int:
        """How much memory the bucket needs, but for what is on a GPU."""
        return sum(_whole_lines(flat) for flat in self.flats if _is_on_cpu(flat))

    def move(self, memory: Tensor) -> None:
        """Go to other memory on the CPU: `n_bytes` bytes. Gradients follow when they come the next time."""
        start = 0
        for index, flat in enumerate(self.flats):
            if not _is_on_cpu(flat):
                continue
            size = flat.numel() * flat.element_size()
            # Through .data: autograd counts the changes of each flat tensor apart from those of its neighbours.
            self.flats[index] = memory[start : start + size].data.view(flat.dtype).copy_(flat)
            start += _whole_lines(flat)
        self._divide()

    def take(self, member: int, gradient: Tensor, parameter: Tensor) -> Tensor:
        """Return the gradient in its place; as it is, where that does not fit it (the model was converted since)."""
        place = self._places[member]
        if _is_same(gradient, place):
            return gradient
        fits = gradient.dtype == place.dtype and gradient.shape == place.shape and gradient.device == place.device
        if not fits or gradient.requires_grad or parameter.stride() != self._strides_of_parameters[member]:
            return gradient
        # Not the place itself: Module.to() gives a gradient, the very object, another memory.
        return place.copy_(gradient).detach()

    def has_all(self, gradients: Sequence[Tensor | None]) -> bool:
        """Whether all members have their gradients, and in their places."""
        pairs = zip(gradients, self._places, strict=True)
        return all(gradient is not None and _is_same(gradient, place) for gradient, place in pairs)


def _is_on_cpu(flat: Tensor) -> bool:
    return flat.device.type == "cpu"


def _is_same(gradient: Tensor, place: Tensor) -> bool:
    return gradient.data_ptr() == place.data_ptr() and gradient.dtype == place.dtype


def _order(shape: torch.Size, strides: tuple[int, ...]) -> str:
    """Return the dimensions that matter, from the one with the longest strides to the one with the shortest."""
    return str(sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: strides[d], reverse=True))


def _whole_lines(flat: Tensor) -> int:
    return -(-flat.numel() * flat.element_size() // _LINE) * _LINE


def share(buckets: Sequence[Bucket]) -> None:
    """Move those that are not in this world's shared memory yet into it, if it has any. All ranks must call it."""
    due = [bucket for bucket in buckets if bucket.asked != world.epoch]
    if not due or engine().size == 1:
        return
    memory, is_shared = allocate_shared(sum(bucket.n_bytes for bucket in due))
    start = 0
    for bucket in due:
        bucket.asked = world.epoch
        if is_shared:
            bucket.move(memory[start : start + bucket.n_bytes])
            start += bucket.n_bytes
