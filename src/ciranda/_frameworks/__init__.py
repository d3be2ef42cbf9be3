"""What the packages for frameworks share beside the collectives. Nothing here imports a framework."""

from __future__ import annotations

import importlib.util


def require(framework: str, needed_by: str) -> None:
    """Raise ModuleNotFoundError, saying what to install, unless the module `framework` can be found."""
    if importlib.util.find_spec(framework) is None:
        raise ModuleNotFoundError(
            f"{needed_by} needs {framework}, which is not installed in this environment: pip install {framework} (or "
            "'import ciranda', which needs NumPy only)",
            name=framework,
        )
