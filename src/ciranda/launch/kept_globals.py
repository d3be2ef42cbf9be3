"""Loads functions that come one after another so that those of a module share their globals, as in a process of theirs.

cloudpickle sends a function of a notebook with the globals that it refers to, and makes a new namespace for it where it
is loaded: what one cell's function assigns to a global would be unknown to the next cell's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any, BinaryIO


class KeptGlobals:
    """The namespaces of the modules whose functions have been loaded, by the modules' names."""

    def __init__(self) -> None:
        self._of_module: dict[str, dict[str, Any]] = {}

    def load(self, file: BinaryIO) -> Any:
        """As `cloudpickle.load`. What a function refers to where it was sent from replaces the global of that name."""
        return _Loader(file, self._kept).load()

    def _kept(self, sent: dict[str, Any]) -> dict[str, Any]:
        kept = self._of_module.setdefault(sent.get("__name__", ""), sent)
        kept.update(sent)
        return kept


class _Loader(pickle.Unpickler):
    def __init__(self, file: BinaryIO, kept: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(file)
        self._kept = kept

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if name != "_make_function" or not module.endswith("cloudpickle.cloudpickle"):  # Ray has a copy of its own
            return found

        def make(code: Any, sent: dict[str, Any], *rest: Any) -> FunctionType:
            made: FunctionType = found(code, self._kept(sent), *rest)
            return made

        return make
