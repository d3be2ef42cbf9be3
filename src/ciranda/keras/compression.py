"""Smaller tensors on the wire, by the backend of Keras."""

from __future__ import annotations

from typing import Any

from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda.keras import backends

__all__ = ["Compression", "Compressor", "NoneCompressor"]


class _Choices:
    """The choices for the argument `compression`: none, and those of the backend's `Compression`."""

    none = NoneCompressor

    def __getattr__(self, name: str) -> Any:
        return getattr(backends.operations().Compression, name)


Compression = _Choices()
