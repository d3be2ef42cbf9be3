"""``ciranda doctor --bundle``: one file that a report of a bug has attached.

It contains the findings, the versions, the installed packages, and the variables that launchers and libraries read.
Values that may be secrets are hidden (`shown()`). Host names, addresses and paths are in it: its owner looks
at it before sending it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import IO

from rich.console import Console

from ciranda._hidden import shown
from ciranda.doctor.finding import Finding
from ciranda.doctor.report import show, to_json
from ciranda.doctor.versions import versions_here

#: Variables of others that change how a job runs.
_READ_BY_OTHERS = (
    "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MKL_NUM_THREADS",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONOPTIMIZE", "RANK", "WORLD_SIZE",
)  # fmt: skip
_COLUMNS = 120


def write(file: IO[bytes], findings: Sequence[Finding]) -> None:
    """Write the archive, a zip, to an open file."""
    table = io.StringIO()
    show(findings, Console(file=table, width=_COLUMNS))
    contents = {
        "doctor.txt": table.getvalue(),
        "doctor.json": to_json(findings) + "\n",
        "versions.json": json.dumps(versions_here(), indent=2) + "\n",
        "variables.json": json.dumps(variables(os.environ), indent=2) + "\n",
        "packages.txt": "".join(f"{line}\n" for line in packages()),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(f"ciranda-doctor/{name}", text)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are given, and what else changes a job, without secrets."""
    return {
        name: shown(name, value)
        for name, value in sorted(environment.items())
        if name.startswith(("CIRANDA_", "HOROVOD_")) or name in _READ_BY_OTHERS
    }


def packages() -> list[str]:
    """Return the installed packages, as name==version."""
    return sorted({f"{each.metadata['Name']}=={each.version}" for each in metadata.distributions()}, key=str.lower)
