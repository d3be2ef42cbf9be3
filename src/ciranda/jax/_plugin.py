"""The native part, registered with XLA: the targets of our custom calls."""

from __future__ import annotations

import ctypes

import jax
import jax.ffi

from ciranda._frameworks import plugin
from ciranda.jax import _versions

COLLECTIVE = "ciranda_jax_collective"
SIZE = "ciranda_jax_size"
NOTHING = "ciranda_jax_nothing"
#: What the calls run on.
PLATFORM = "cpu"

library = plugin.opened("jax", _versions.check())


def _register(target: str) -> None:
    address = ctypes.cast(getattr(library, target), ctypes.c_void_p).value
    try:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(address), platform=PLATFORM, api_version=1)
    except Exception as error:  # of jaxlib's own making; it names the two versions that do not fit
        raise ImportError(f"ciranda.jax: jaxlib {_versions.check()} does not take {target}: {error}") from error


for _target in (COLLECTIVE, SIZE, NOTHING):
    _register(_target)


def live_calls() -> int:
    """How many calls of compiled programs have not ended."""
    return int(library.ciranda_plugin_live_calls())


def describe() -> str:
    """Return what was found, for `ciranda doctor`."""
    taken = f"{COLLECTIVE}, {SIZE} and {NOTHING}"
    return f"jaxlib {_versions.check()} has taken {taken}, for programs of its platform {PLATFORM}"
