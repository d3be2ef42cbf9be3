"""Smaller tensors on the wire. A compressor is a class with two static methods; write your own by subclassing."""

from __future__ import annotations

from typing import Any


class Compressor:
    """The interface: `decompress` undoes `compress`, given the context that it returned."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return what to communicate, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in the form that `compress` was given."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return `tensor`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return `tensor`."""
        return tensor
