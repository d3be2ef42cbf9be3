"""Starting jobs: hosts and slots, an agent on every host, their output, their end.

Importing this package costs nothing and loads neither a framework nor the engine; the names below are found when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ciranda.launch.api import run
    from ciranda.launch.errors import HostsError, LaunchError
    from ciranda.launch.notebook import show_top
    from ciranda.launch.pool import Pool

__all__ = ["HostsError", "LaunchError", "Pool", "run", "show_top"]


def __getattr__(name: str) -> object:
    if name == "run":
        from ciranda.launch import api  # at first use: see above

        return api.run
    if name == "Pool":
        from ciranda.launch import pool  # as above

        return pool.Pool
    if name == "show_top":
        from ciranda.launch import notebook  # as above

        return notebook.show_top
    if name in ("HostsError", "LaunchError"):
        from ciranda.launch import errors  # as above

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
