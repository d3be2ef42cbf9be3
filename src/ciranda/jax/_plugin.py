"""Registers the native plugin with XLA: the targets of our custom calls."""

from __future__ import annotations

import ctypes

import jax
import jax.ffi

from ciranda._frameworks import plugin
from ciranda._frameworks.looks import Looks
from ciranda.jax import _versions

COLLECTIVE = "ciranda_jax_collective"
SIZE = "ciranda_jax_size"
LOOK = "ciranda_jax_look"
NOTHING = "ciranda_jax_nothing"
GPU_COLLECTIVE = "ciranda_jax_gpu_collective"
GPU_SIZE = "ciranda_jax_gpu_size"
GPU_LOOK = "ciranda_jax_gpu_look"
#: The platform of arrays and calls outside programs.
PLATFORM = "cpu"
#: The other platform of programs.
GPU_PLATFORM = "cuda"

library = plugin.opened("jax", _versions.check())
looks = Looks(library)


def _register(target: str, platform: str) -> None:
    address = ctypes.cast(getattr(library, target), ctypes.c_void_p).value
    try:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(address), platform=platform, api_version=1)
    except Exception as error:  # jaxlib's error names the two versions that do not match
        raise ImportError(f"ciranda.jax: jaxlib {_versions.check()} does not take {target}: {error}") from error


for _target in (COLLECTIVE, SIZE, LOOK, NOTHING):
    _register(_target, PLATFORM)
for _target in (GPU_COLLECTIVE, GPU_SIZE, GPU_LOOK):
    _register(_target, GPU_PLATFORM.upper())


def live_calls() -> int:
    """Return the number of pending calls of compiled programs."""
    return int(library.ciranda_plugin_live_calls())


def describe() -> str:
    """Return the findings for `ciranda doctor`."""
    taken = f"{COLLECTIVE}, {SIZE}, {LOOK} and {NOTHING}"
    return f"jaxlib {_versions.check()} has taken {taken}, for programs of its platform {PLATFORM}"
