"""The functions of this process's engine, for bindings in C and C++: see docs/guide/c_api.md."""

from __future__ import annotations

from ciranda import _core


def get_c_table() -> object:
    """Return the table of the engine's functions (`ciranda/table.h`), as a capsule named "ciranda._core.TABLE".

    A binding that is loaded into a Python process calls the engine by this table and links nothing. So it shares the
    world that `init()` joins, with its names, errors and `shutdown()`.
    """
    return _core.TABLE


def get_c_table_address() -> int:
    """Return the address of the table that `get_c_table()` returns, for ctypes and the like."""
    return _core.table_address()
