"""Ciranda: distributed data-parallel training. This module works on NumPy arrays; `ciranda.torch` on torch tensors.

    import ciranda as hvd

    hvd.init()
    total = hvd.allreduce(numpy.array([1.0]), op=hvd.Sum)

Every process runs the same script; `ciranda run -np 4 python script.py` starts them.

Importing the package loads neither the engine nor NumPy: its names are loaded on first use. So the command line starts
fast, and `ciranda doctor` can diagnose an engine that does not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ciranda._api import *  # noqa: F403 (what it exports is the package)
    from ciranda._core import __version__ as __version__


def __getattr__(name: str) -> object:
    if name == "_core":
        return _engine()
    # Only what is public, and never the name under which the import below would look for itself.
    if name.startswith("_") and name not in ("__all__", "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ciranda import _api  # at first use: see above

    try:
        value: object = getattr(_api, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value


def _engine() -> object:
    """Load the extension for `from ciranda import _core`; if another build's libciranda is in its place, say so."""
    try:
        import ciranda._core as core  # at first use: see above
    except ImportError as error:
        from ciranda._other_build import why_refused  # only here is it needed

        why = why_refused(str(error))
        if why is None:
            raise
        raise ImportError(why, name=error.name, path=error.path) from error
    return core


def __dir__() -> list[str]:
    from ciranda import _api  # at first use: see above

    return sorted(vars(_api)["__all__"])
