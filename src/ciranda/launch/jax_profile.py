"""When a profile of JAX began: its trace has times from its beginning on, and the file beside it says when that was.

``jax.profiler`` leaves in one folder ``HOST.trace.json.gz``, if asked ``perfetto_trace.json.gz`` with the same events,
and ``HOST.xplane.pb``, a message XSpace of protocol buffers (openxla/xla, third_party/tsl/tsl/profiler/protobuf). Of
that, the plane "Task Environment" has the time of day in its stat ``profile_start_time``. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

#: A number, and a whole number or bytes.
_Field: TypeAlias = "tuple[int, int | memoryview]"

_PLANE = b"Task Environment"
_STAT = b"profile_start_time"
# Numbers of fields, and of their kinds.
_PLANES, _NAME, _STAT_METADATA, _STATS = 1, 2, 5, 6
_KEY, _VALUE = 1, 2  # of an entry of a map
_METADATA_ID, _UINT64, _INT64 = 1, 3, 4  # of a stat
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def began_ns(trace: Path) -> int | None:
    """The time of day at which the trace's times begin, in nanoseconds since the epoch.

    None if no file beside it says so. Raises OSError.
    """
    name = trace.name.partition(".trace.json")[0] + ".xplane.pb"
    files = sorted(trace.parent.glob("*.xplane.pb"))
    own = [file for file in files if file.name == name] or files
    try:
        return _start_of(memoryview(own[0].read_bytes())) if len(own) == 1 else None
    except (ValueError, IndexError):  # it is torn, or something else
        return None


def trace_in(folder: Path) -> Path | None:
    """The trace of the last profile that JAX has written to this folder; None without any."""
    found = sorted(folder.glob("plugins/profile/*/*.trace.json.gz"))
    return found[-1] if found else None


def _start_of(space: memoryview) -> int | None:
    for plane in _messages(_fields(space), _PLANES):
        fields = list(_fields(plane))
        if _name_of(fields) == _PLANE:
            return _stat(fields)
    return None


def _stat(plane: list[_Field]) -> int | None:
    """The value of the stat in the fields of its plane."""
    number = None
    for entry in _messages(plane, _STAT_METADATA):
        fields = list(_fields(entry))
        if any(_name_of(_fields(named)) == _STAT for named in _messages(fields, _VALUE)):
            number = dict(fields).get(_KEY)
    for stat in map(dict, map(_fields, _messages(plane, _STATS))):
        if number is not None and stat.get(_METADATA_ID) == number:
            found = stat.get(_UINT64, stat.get(_INT64))
            return found if isinstance(found, int) else None
    return None


def _messages(fields: Iterable[_Field], number: int) -> Iterator[memoryview]:
    """The values of a field that are messages, or bytes."""
    return (value for field, value in fields if field == number and isinstance(value, memoryview))


def _name_of(fields: Iterable[_Field]) -> bytes:
    return b"".join(value.tobytes() for value in _messages(fields, _NAME))


def _fields(message: memoryview) -> Iterator[_Field]:
    """The fields of a message with their numbers: a whole number, or bytes. Raises ValueError or IndexError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            n_bytes, at = _varint(message, at)
        else:
            n_bytes = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if not 0 <= n_bytes <= len(message) - at:
            raise ValueError(f"no field at {at}")
        yield tag >> 3, message[at : at + n_bytes]
        at += n_bytes


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number, and where the next field begins."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
