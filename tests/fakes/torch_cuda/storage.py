"""Storages of the device, which a torch without CUDA can neither make nor copy by themselves."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def install(library: ctypes.CDLL) -> None:
    kind: Any = torch.UntypedStorage
    plain_new, plain_copy, plain_resize = kind.__new__, kind.copy_, kind.resize_

    def new(cls: Any, *arguments: Any, device: Any = None, **options: Any) -> torch.UntypedStorage:
        if device is None or torch.device(device).type != "cuda":
            return plain_new(cls, *arguments, device=device, **options)
        if arguments and not isinstance(arguments[0], int):
            return torch.tensor(arguments[0], dtype=torch.uint8, device=device).untyped_storage()
        n_bytes = arguments[0] if arguments else 0
        return torch.empty(n_bytes, dtype=torch.uint8, device=device).untyped_storage()

    def copy(self: Any, source: Any, non_blocking: bool | None = None) -> Any:
        if self.device.type != "cuda" and source.device.type != "cuda":
            return plain_copy(self, source, non_blocking)
        _bytes_of(self).copy_(_bytes_of(source), non_blocking=bool(non_blocking))
        return self

    def resize(self: Any, n_bytes: int) -> Any:
        if self.device.type != "cuda":
            return plain_resize(self, n_bytes)
        library.fake_torch_resize_storage(self._cdata, n_bytes)
        return self

    kind.__new__, kind.copy_, kind.resize_ = new, copy, resize
