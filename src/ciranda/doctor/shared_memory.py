"""Shared memory between the ranks of a host."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from ciranda.doctor.finding import Finding

FOLDER = "/dev/shm"
_TRIAL_BYTES = 1 << 20
_WANTED_BYTES = 64 << 20  # a few ranks' slots, and room for the data loaders of the frameworks


def shared_memory(folder: str = FOLDER) -> Iterator[Finding]:
    """The size of /dev/shm, and whether 1 MiB written to it is read back through a mapping."""
    name = folder
    try:
        state = os.statvfs(folder)
    except OSError as error:
        advice = f"mount a tmpfs there (mount -t tmpfs tmpfs {folder}); until then ranks use TCP"
        yield Finding(name, "warn", error.strerror or str(error), advice)
        return
    size, free = state.f_frsize * state.f_blocks, state.f_frsize * state.f_bavail
    text = f"{_mib(free)} free of {_mib(size)}"
    failure = _trial(folder)
    if failure is not None:
        advice = f"make {folder} writable and give it space; until then ranks use TCP"
        yield Finding(name, "warn", f"{text}; writing 1 MiB failed: {failure}", advice)
    elif free < _WANTED_BYTES:
        advice = f"below {_mib(_WANTED_BYTES)}: clear it, or give the container more (docker run --shm-size=1g)"
        yield Finding(name, "warn", text, advice)
    else:
        yield Finding(name, "ok", f"{text}; 1 MiB written, mapped and read back")


def _trial(folder: str) -> str | None:
    """Why 1 MiB cannot be written and mapped there, or None. Leaves nothing behind."""
    path = os.path.join(folder, f"ciranda-doctor-{os.getpid()}")
    pattern = os.urandom(4096) * (_TRIAL_BYTES // 4096)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.unlink(path)
            os.posix_fallocate(fd, 0, _TRIAL_BYTES)
            os.pwrite(fd, pattern, 0)
            with mmap.mmap(fd, _TRIAL_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as view:
                return None if view[:] == pattern else "it read back wrong"
        finally:
            os.close(fd)
    except OSError as error:
        return error.strerror or str(error)


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB"
