"""The environment of a rank: what is passed on from the launcher, and what tells a rank who it is. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

from ciranda.launch.hosts import Slot

# Belongs to the machine or the terminal of the launcher; a remote host has its own.
LOCAL_ONLY = (
    "SSH_*", "HOSTNAME", "HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_*", "DBUS_*", "PWD", "OLDPWD",
    "SHLVL", "_", "TMPDIR", "TEMP", "TMP", "TTY", "GPG_TTY", "WINDOWID", "TMUX*", "STY", "MAIL", "LS_COLORS",
)  # fmt: skip

# Told to each rank anew; never taken over from a surrounding job.
_IDENTITY = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")

# What Horovod's launcher says of itself, and scripts look at to see that they were launched, and that without MPI.
_CONTROLLER = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}


def forwarded(environ: Mapping[bytes, bytes], remote: bool, exclude: Iterable[str] = ()) -> dict[bytes, bytes]:
    """What of the launcher's environment goes to a host's ranks: all but ``exclude``, and but LOCAL_ONLY if remote.

    ``exclude`` are names, or patterns as in a shell.
    """
    patterns = [*exclude, *(LOCAL_ONLY if remote else ())]
    return {name: value for name, value in environ.items() if not _matches(name, patterns)}


def _matches(name: bytes, patterns: list[str]) -> bool:
    text = name.decode("utf-8", "surrogateescape")
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def identity(slot: Slot) -> dict[str, str]:
    """The variables that tell a rank who it is, under Ciranda's names and Horovod's."""
    values = (slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size)
    env = dict(_CONTROLLER)
    for name, value in zip(_IDENTITY, values, strict=True):
        env[f"CIRANDA_{name}"] = env[f"HOROVOD_{name}"] = str(value)
    env["CIRANDA_HOST"] = env["HOROVOD_HOSTNAME"] = slot.host
    return env
