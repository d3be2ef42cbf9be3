"""What runs here: the versions with which a report of a bug begins.

Nothing is imported that might not load: the engine describes itself in another process, its compiler is read from its
file, and frameworks are those of the packages' metadata.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

from ciranda._nccl import nccl
from ciranda.doctor import software
from ciranda.doctor.engine import run_python

_ENGINE = """
from ciranda import _core
print(_core.__version__, _core.best_simd_level())
"""
_SECONDS = 30
#: As compilers sign their objects, in the section .comment.
_COMPILER = re.compile(rb"GCC: \([^)\0]*\) [0-9][0-9.]*|clang version [0-9][0-9.]*")


def versions_here() -> dict[str, str]:
    """Return what there is, by name, in the order in which it is shown."""
    version, simd = _engine()
    return {
        "ciranda": version,
        "commit": commit() or "unknown",
        "built for": wheel_tag() or "unknown",
        "compiler": compiler() or "unknown",
        "vector instructions": simd,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "NCCL": _nccl(),
        "frameworks": ", ".join(software.frameworks_found()) or "none",
    }


def _engine() -> tuple[str, str]:
    """The engine's version, and the best instruction set here, with the setting; or why it does not load."""
    try:
        done = run_python(["-c", _ENGINE], keep=(), seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the engine does not load in {_SECONDS} s", "unknown"
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        return f"the engine does not load: {last}", "unknown"
    version, simd = words
    asked_for = os.environ.get("CIRANDA_SIMD", "")
    return version, f"{simd}; CIRANDA_SIMD={asked_for}" if asked_for else simd


def _nccl() -> str:
    """As it is found without being used."""
    found = nccl()
    if not found.version:
        return "none"
    return f"{found.text} ({found.path})" + (f"; not used: {found.problem}" if found.problem else "")


def commit() -> str | None:
    """Return the commit that the package was built from, or of the clone whose src/ it is."""
    package = _package()
    clone = package.parent.parent
    if package.parent.name == "src" and (clone / ".git").exists():
        return _head(clone)
    try:
        return (metadata.distribution("ciranda").read_text("commit") or "").strip() or None
    except metadata.PackageNotFoundError:
        return None


def _head(clone: Path) -> str | None:
    """The commit that is checked out, with a mark if files of the package differ from it."""
    git = ["git", "-C", str(clone)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "cpp", "src"], timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + (" with changes" if changed.returncode else "")


def wheel_tag() -> str | None:
    """Return the tag of the wheel that was installed: the interpreter, its ABI, and the oldest system."""
    try:
        text = metadata.distribution("ciranda").read_text("WHEEL") or ""
    except metadata.PackageNotFoundError:
        return None
    tags = re.findall(r"^Tag: (\S+)$", text, re.M)
    return ", ".join(tags) or None


def compiler() -> str | None:
    """Return the compilers that the engine's file names."""
    library = _package() / "lib" / "libciranda.so"
    if not library.exists():
        return None
    named = sorted({found.decode("ascii", "replace") for found in _COMPILER.findall(library.read_bytes())})
    return ", ".join(named) or None


def _package() -> Path:
    spec = importlib.util.find_spec("ciranda")
    assert spec is not None
    assert spec.origin is not None
    return Path(os.path.realpath(spec.origin)).parent
