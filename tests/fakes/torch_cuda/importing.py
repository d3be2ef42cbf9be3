"""Installs the fake around the import of torch: torch asks once, early, whether it has CUDA."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .build import library, torch_folder


def _load() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library()))
    loaded.fake_torch_stream.restype = ctypes.c_size_t
    loaded.fake_torch_set_stream.argtypes = [ctypes.c_int, ctypes.c_size_t]
    loaded.fake_torch_resize_storage.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    loaded.fake_torch_n_allocated_bytes.restype = ctypes.c_size_t
    return loaded


class _Torch(Loader):
    """Executes torch with the C++ part loaded before it, and the Python part after it."""

    def __init__(self, torch: Loader) -> None:
        self._torch = torch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._torch.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        loaded = _load()
        self._torch.exec_module(module)
        from . import api, batch_norm, storage

        api.install(loaded)
        storage.install(loaded)
        self._kernels = batch_norm.install()


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Torch(spec.loader)
        return spec


def has_real_cuda() -> bool:
    """Whether the torch that is installed was built with CUDA, which needs no fake."""
    return (torch_folder() / "lib/libtorch_cuda.so").exists()


def install() -> None:
    """Makes `torch.cuda` that of the fake driver, which LD_LIBRARY_PATH must lead to, once torch is imported.

    Raises RuntimeError if torch has been imported, or was built with CUDA. If `libcuda.so.1` is another driver, the
    first tensor of the device does.
    """
    if has_real_cuda():
        raise RuntimeError("this torch was built with CUDA, which needs no fake")
    if "torch" in sys.modules:
        raise RuntimeError("install() comes before torch is imported")
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
