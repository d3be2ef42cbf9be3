"""`horovod.runner.js_run`: whether there is jsrun."""

from __future__ import annotations

import shutil

from horovod.runner.mpi_run import mpi_run as js_run

__all__ = ["is_jsrun_installed", "js_run"]


def is_jsrun_installed() -> bool:
    """Whether the command is there. Ciranda does not use it."""
    return shutil.which("jsrun") is not None
