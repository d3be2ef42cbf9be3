"""Memory that the gradients of a group have in common, for DistributedOptimizer(gradient_as_bucket_view=True)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor


class Bucket:
    """One flat tensor for each dtype of a group's parameters, and in them a place for each parameter's gradient.

    A gradient that autograd has put elsewhere is moved to its place, once a step; autograd then adds to it there.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._places: list[Tensor] = [torch.empty(0)] * len(parameters)
        self.flats: list[Tensor] = []
        for dtype in dict.fromkeys(parameter.dtype for parameter in parameters):
            members = [index for index, parameter in enumerate(parameters) if parameter.dtype == dtype]
            sizes = [parameters[member].numel() for member in members]
            flat = torch.zeros(sum(sizes), dtype=dtype)
            self.flats.append(flat)
            for member, part in zip(members, torch.split(flat, sizes), strict=True):
                self._places[member] = part.view(parameters[member].shape)

    def take(self, member: int, gradient: Tensor) -> Tensor:
        """Return the gradient in its place; as it is, where that does not fit it (the model was converted since)."""
        place = self._places[member]
        if _is_same(gradient, place):
            return gradient
        fits = gradient.dtype == place.dtype and gradient.shape == place.shape and gradient.device == place.device
        if not fits or gradient.requires_grad:
            return gradient
        # Not the place itself: Module.to() gives a gradient, the very object, another memory.
        return place.copy_(gradient).detach()

    def has_all(self, gradients: Sequence[Tensor | None]) -> bool:
        """Whether all members have their gradients, and in their places."""
        pairs = zip(gradients, self._places, strict=True)
        return all(gradient is not None and _is_same(gradient, place) for gradient, place in pairs)


def _is_same(gradient: Tensor, place: Tensor) -> bool:
    return gradient.data_ptr() == place.data_ptr() and gradient.dtype == place.dtype
