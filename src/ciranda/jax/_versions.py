"""The supported versions of JAX."""

from __future__ import annotations

from importlib import metadata

#: Older versions of XLA execute the calls of a program sequentially, and have no `jax.ffi`.
OLDEST = (0, 5)


def check() -> str:
    """Return the version of jaxlib that is installed. Raises ImportError for one that is too old, or missing."""
    try:
        version = metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        raise ImportError("ciranda.jax needs jaxlib, which is not installed: pip install jax") from None
    if _numbers(version) < OLDEST:
        raise ImportError(
            f"ciranda.jax needs JAX 0.5 or newer, and jaxlib {version} is installed: before 0.5, XLA carries out the "
            "calls of a compiled program one after the other, so that ranks whose programs are scheduled differently "
            "would wait for each other for ever: pip install --upgrade jax"
        )
    return version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
