"""`horovod.common.exceptions`: what scripts catch."""

from __future__ import annotations

from ciranda.elastic import HostsUpdatedInterrupt
from ciranda.errors import HorovodInternalError

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The text of HorovodVersionMismatchError."""
    return (
        f"{name} {installed_version} is installed, but {version} is what this was made for: install that version, or "
        f"make this anew with {name} {installed_version}."
    )


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than the one that something was compiled for. Ciranda never raises it."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
