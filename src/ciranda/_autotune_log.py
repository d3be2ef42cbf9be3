"""What the engine has measured of the ways to carry out allreduces, as a table in a file."""

from __future__ import annotations

import csv
import sys

from ciranda import _core
from ciranda.errors import InvalidArgumentError

_COLUMNS = ("bytes", "algorithm", "segment_bytes", "in_place", "expected_us", "taken_us", "chosen")
_SIZES = [1 << exponent for exponent in range(31)]


def write(engine: _core.Engine) -> None:
    """Write the file of the settings, on rank 0: a row for each size of allreduces and each algorithm tried."""
    try:
        path = str(_core.effective_settings()["CIRANDA_AUTOTUNE_LOG"])
    except InvalidArgumentError:  # the environment has changed since init(), which would have refused it
        return
    if not path or engine.rank != 0:
        return
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(_COLUMNS)
            for n_bytes in _SIZES:
                for name, segment, expected, taken, is_chosen, is_in_place in engine.candidates(
                    _core.COLLECTIVES["allreduce"], n_bytes
                ):
                    if taken is not None:
                        table.writerow((n_bytes, name, segment, int(is_in_place), expected, taken, int(is_chosen)))
    except OSError as error:  # not worth to fail a job for that has just ended
        sys.stderr.write(f"ciranda: cannot write CIRANDA_AUTOTUNE_LOG={path}: {error.strerror}\n")
