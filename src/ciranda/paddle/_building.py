"""The operators' shared library: built with the package, or just in time by this machine's compiler."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import paddle

import ciranda

_PACKAGE = Path(ciranda.__file__).parent
_NAME = "libciranda_paddle.so"
#: The sources that came with the package.
_SOURCES = _PACKAGE / "lib" / "sources"
#: Leaves out the parts of Paddle's headers that are not installed; and calls the engine through the table.
_DEFINES = ("PADDLE_WITH_CUSTOM_KERNEL", "CIRANDA_USE_TABLE")
_SECONDS = 600


class CannotBuildError(Exception):
    """There is no library, and none can be built; the message has the reason."""


def made_ahead() -> Path:
    """Return the library that was built with the package, which serves every supported version of Paddle.

    Raises:
        CannotBuildError: there is none.
    """
    path = _PACKAGE / "lib" / _NAME
    if not path.exists():
        raise CannotBuildError("no library was made when the package was built")
    return path


def _compiler() -> str:
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        found = shutil.which(name)
        if found:
            return found
    raise CannotBuildError("there is no C++ compiler: install g++ 11 or newer, or let CXX name one")


def _command(compiler: str, output: Path) -> list[str]:
    includes = [
        paddle.sysconfig.get_include(),
        f"{paddle.sysconfig.get_include()}/third_party",
        ciranda.get_include(),
        _SOURCES,
    ]
    libpaddle = Path(paddle.__file__).parent / "base"
    return [
        *(compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-w"),
        *(f"-D{name}" for name in _DEFINES),
        *(f"-I{folder}" for folder in includes),
        *(str(_SOURCES / "bindings" / "paddle" / "ops.cc"), "-o", str(output)),
        # By file name alone, so that the library uses the Paddle that is loaded.
        *(f"-L{libpaddle}", "-Wl,--no-as-needed", "-l:libpaddle.so", "-Wl,-z,now", "-ldl"),
    ]


def _cached(compiler: str) -> Path:
    digest = hashlib.sha256(f"{paddle.__version__} {compiler} {ciranda.__version__}".encode())
    for path in sorted([*(_SOURCES / "bindings" / "paddle").iterdir(), *Path(ciranda.get_include()).rglob("*.h*")]):
        digest.update(path.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ciranda" / "paddle" / digest.hexdigest()[:16] / _NAME


def _compile(compiler: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        output = Path(folder) / _NAME
        done = subprocess.run(_command(compiler, output), capture_output=True, text=True, check=False, timeout=_SECONDS)
        if done.returncode:
            raise CannotBuildError(f"{compiler} cannot compile the operators: {done.stderr.strip()[-2000:]}")
        output.replace(path)


def just_in_time() -> Path:
    """Return the library for this Paddle, compiled unless it has been before. Takes some 20 seconds.

    Raises:
        CannotBuildError: there is no compiler, or it fails; the message has its output.
    """
    compiler = _compiler()
    path = _cached(compiler)
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the ranks of a host may compile at the same time
            if not path.exists():
                _compile(compiler, path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"the operators cannot be compiled in {path.parent}: {error}") from error
    return path
