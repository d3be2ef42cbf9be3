"""The slot of a rank in its world, which one process can have at a time: see cpp/capi/kept_slot.hpp.

The engine keeps the slot, and says who does. Here is which slot it is where another launcher's variables describe it,
and what `os.environ`, a copy of the environment, says to programs that this process starts.
"""

from __future__ import annotations

import os

from ciranda import _core
from ciranda.engines.identity import slot_of
from ciranda.errors import NotSupportedError

#: Where the slot is kept. Not a setting.
VARIABLE = "CIRANDA_TAKEN_BY"


def require_free() -> None:
    """Raise NotSupportedError if the process that started this program, or one before it, has its slot."""
    if why := _core.why_taken(slot_of(os.environ)):
        raise NotSupportedError(f"init(): {why}")


def tell(engine: _core.Engine) -> None:
    """Tell programs that this process starts which slot it keeps, if it keeps one."""
    if engine.kept_slot:
        os.environ[VARIABLE] = engine.kept_slot


def tell_no_more(path: str) -> None:
    """Take back what was told of the slot that was kept there."""
    if path and os.environ.get(VARIABLE) == path:
        del os.environ[VARIABLE]
