"""`horovod.runner.js_run`: whether there is jsrun."""

from __future__ import annotations

import shutil

__all__ = ["is_jsrun_installed"]


def is_jsrun_installed() -> bool:
    """Whether the command is there. Ciranda does not use it."""
    return shutil.which("jsrun") is not None
