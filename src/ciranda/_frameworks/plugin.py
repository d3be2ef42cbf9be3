"""The native part of a framework's binding: a shared library of this package that uses the engine of the process."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ciranda

_OPENED: dict[str, ctypes.CDLL] = {}
_MESSAGE_BYTES = 4096


def opened(name: str, framework_version: str, path: Path | None = None) -> ctypes.CDLL:
    """Return libciranda_NAME.so, opened: registered with the framework, which has to be loaded.

    Args:
        name: of the binding.
        framework_version: for messages.
        path: where the library is, if not in this package.

    Raises:
        ImportError: that version of the framework lacks what the library needs; the message names it.
    """
    if name not in _OPENED:
        library = ctypes.CDLL(str(path or Path(ciranda.__file__).parent / "lib" / f"libciranda_{name}.so"))
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        library.ciranda_plugin_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        library.ciranda_plugin_live_calls.restype = ctypes.c_int64
        table = ciranda.get_c_table_address()
        if library.ciranda_plugin_open(table, framework_version.encode(), message, len(message)):
            raise ImportError(f"ciranda.{name}: {message.value.decode(errors='replace')}")
        _OPENED[name] = library
    return _OPENED[name]
