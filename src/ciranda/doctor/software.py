"""Python, the frameworks, the tools. Versions are read from package metadata: no framework is imported."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from ciranda.doctor.finding import Finding

_OLDEST_PYTHON = (3, 10)
_FRAMEWORKS = (
    "torch", "tensorflow", "tensorflow-cpu", "jax", "keras", "mxnet", "paddlepaddle", "lightning", "transformers",
)  # fmt: skip
#: Modules whose distributions have other names as well, as mxnet-mkl and tensorflow-intel.
_MODULES = ("mxnet", "paddle", "tensorflow")
_NEEDED = ("numpy", "cloudpickle", "psutil", "rich", "typer")


def python() -> Iterator[Finding]:
    """The interpreter, Ciranda itself, and the packages that it needs."""
    text = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < _OLDEST_PYTHON:
        yield Finding("Python", "fail", text, "Python 3.10 or newer is needed")
    else:
        yield Finding("Python", "ok", text)
    own = _version("ciranda")
    if own is None:
        yield Finding("ciranda", "warn", "in use, but not installed as a package", "install it: pip install .")
    else:
        yield Finding("ciranda", "ok", own)
    versions = {name: _version(name) for name in _NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    if missing:
        yield Finding("packages", "fail", found, f"missing: pip install {' '.join(missing)}")
    else:
        yield Finding("packages", "ok", found)


def frameworks() -> Iterator[Finding]:
    """Those that are installed."""
    found = frameworks_found()
    if found:
        yield Finding("frameworks", "ok", ", ".join(found))
    else:
        yield Finding("frameworks", "warn", "none installed", "NumPy arrays work; for torch: pip install torch")


def frameworks_found() -> list[str]:
    """Return the installed frameworks, each with its version."""
    providers = metadata.packages_distributions()
    others = sorted({name for module in _MODULES for name in providers.get(module, ())} - {*_FRAMEWORKS})
    return [f"{name} {version}" for name in (*_FRAMEWORKS, *others) if (version := _version(name)) is not None]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def ssh_client() -> Iterator[Finding]:
    """Only jobs on several hosts need it."""
    program = shutil.which("ssh")
    if program is None:
        yield Finding("ssh", "warn", "no ssh on the PATH", "install an OpenSSH client to start ranks on other hosts")
        return
    done = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=10, check=False)
    words = (done.stderr or done.stdout).strip()
    if done.returncode != 0:
        yield Finding("ssh", "warn", f"{program} does not run: {words}", "reinstall the OpenSSH client")
    else:
        yield Finding("ssh", "ok", f"{words} at {program}")
