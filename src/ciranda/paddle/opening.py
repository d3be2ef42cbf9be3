"""Opens a program of either IR, to be rewritten."""

from __future__ import annotations

from typing import Any

from ciranda.paddle import _plugin, programs
from ciranda.paddle.rewriting import Rewritable


def open_program(program: Any) -> Rewritable:
    """Return a program of either IR, to be rewritten."""
    _plugin.require_operators("rewriting a program", is_pir=not programs.is_old(program))
    if programs.is_old(program):
        from ciranda.paddle._old_ir import OldProgram  # only where there are such programs

        return OldProgram(program)
    from ciranda.paddle._pir import PirProgram  # older versions of Paddle have no PIR

    return PirProgram(program)
