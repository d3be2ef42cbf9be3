"""Is a real Horovod installed as well? Two distributions that bring a module of the same name mix their files."""

from __future__ import annotations

import warnings
from importlib import metadata
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_HOW = (
    "Keep one: 'pip uninstall horovod ciranda-horovod' and then 'pip install' the one you want "
    "(Ciranda itself, 'import ciranda.torch', works beside either)."
)


def refuse_to_mix(distribution: str = "horovod") -> None:
    """Look for another distribution that brings the module `horovod`.

    Raises:
        ImportError: it is installed into this very folder, so that nobody knows whose files are loaded.

    Warns:
        RuntimeWarning: it is installed elsewhere, and this one is found first.
    """
    try:
        other = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return
    folder = Path(str(other.locate_file("horovod"))).resolve()
    if folder == _HERE:
        raise ImportError(
            f"The distributions horovod {other.version} and ciranda-horovod are both installed in {_HERE.parent} "
            f"and their files are mixed. {_HOW}"
        )
    if folder.is_dir():
        warnings.warn(
            f"'import horovod' loads Ciranda's, from {_HERE.parent}; horovod {other.version} in {folder.parent} is "
            f"hidden by it. {_HOW}",
            RuntimeWarning,
            stacklevel=3,
        )
