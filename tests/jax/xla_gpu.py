"""XLA's side of our calls in programs for a GPU, by ctypes: the frames, on streams and memory of the fake driver.

jaxlib's own needs a real GPU. The structs are those of cpp/bindings/jax/ffi.hpp, which test_internals.py compares with
jaxlib's header.
"""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import driver
import numpy as np
import numpy.typing as npt

from ciranda.jax import _plugin

_SCALAR, _STRING = 3, 4
_TYPES = {"bool": 1, "int8": 2, "int32": 4, "int64": 5, "uint8": 6, "float16": 10, "float32": 11, "float64": 12}
_CODES = {3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 13: "INTERNAL"}
_CODES[14] = "UNAVAILABLE"


class _Struct(c.Structure):
    """One whose first field is its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(c.sizeof(self), None, **fields)


def _struct(name: str, *fields: tuple[str, Any]) -> Any:
    begin = [("struct_size", c.c_size_t), ("extensions", c.c_void_p)]
    return type(name, (_Struct,), {"_fields_": [*begin, *fields]})


class _Span(c.Structure):
    _fields_: ClassVar = [("data", c.c_char_p), ("size", c.c_size_t)]


class _Scalar(c.Structure):
    _fields_: ClassVar = [("dtype", c.c_int32), ("value", c.c_void_p)]


_Version = _struct("_Version", ("major", c.c_int32), ("minor", c.c_int32))
_MakeError = _struct("_MakeError", ("message", c.c_char_p), ("code", c.c_int32))
_GetStream = _struct("_GetStream", ("context", c.c_void_p), ("stream", c.c_void_p))
_GetDevice = _struct("_GetDevice", ("context", c.c_void_p), ("number", c.c_int32))
_GetRunId = _struct("_GetRunId", ("context", c.c_void_p), ("run_id", c.c_int64))
_Buffer = _struct(
    "_Buffer", ("dtype", c.c_int32), ("data", c.c_void_p), ("ndim", c.c_int64), ("shape", c.POINTER(c.c_int64))
)
_Buffers = _struct("_Buffers", ("size", c.c_int64), ("kinds", c.c_void_p), ("items", c.POINTER(c.POINTER(_Buffer))))
_Attributes = _struct(
    "_Attributes",
    ("size", c.c_int64),
    ("kinds", c.POINTER(c.c_int32)),
    ("names", c.POINTER(c.POINTER(_Span))),
    ("items", c.POINTER(c.c_void_p)),
)
_MAKE_ERROR = c.CFUNCTYPE(c.c_void_p, c.POINTER(_MakeError))
_GET_STREAM = c.CFUNCTYPE(c.c_void_p, c.POINTER(_GetStream))
_GET_DEVICE = c.CFUNCTYPE(c.c_void_p, c.POINTER(_GetDevice))
_GET_RUN_ID = c.CFUNCTYPE(c.c_void_p, c.POINTER(_GetRunId))
_Api = _struct(
    "_Api",
    ("version", _Version),
    ("internal", c.c_void_p),
    ("make_error", _MAKE_ERROR),
    ("others", c.c_void_p * 3),
    ("get_stream", _GET_STREAM),
    ("others_too", c.c_void_p * 11),
    ("get_run_id", _GET_RUN_ID),
    ("get_device", _GET_DEVICE),
)
_Frame = _struct(
    "_Frame",
    ("api", c.POINTER(_Api)),
    ("context", c.c_void_p),
    ("stage", c.c_int32),
    ("arguments", _Buffers),
    ("results", _Buffers),
    ("attributes", _Attributes),
    ("future", c.c_void_p),
)


class ProgramError(Exception):
    """What a program of XLA fails with."""


class Array:
    """An array in the GPU's memory, whose content is there when the stream comes to it."""

    def __init__(self, content: npt.NDArray[Any], stream: int) -> None:
        self.dtype, self.shape, self._stream = content.dtype, content.shape, stream
        self._memory = driver.Block(content.nbytes, stream)
        self.address = self._memory.address
        driver.fill(self.address, np.ascontiguousarray(content), stream)

    def get(self) -> npt.NDArray[Any]:
        n_bytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        found = driver.fetch(self.address, n_bytes, self._stream)
        return found.view(self.dtype).reshape(self.shape)


def _pointers(of: Any, items: Sequence[Any]) -> Any:
    return (c.POINTER(of) * max(len(items), 1))(*map(c.pointer, items))


class Gpu:
    """The runs of programs on GPU 0, in one stream.

    Attributes:
        knows_its_number: as in programs of newer versions of jaxlib.
    """

    def __init__(self) -> None:
        self.stream = driver.new_stream()
        self.knows_its_number = True
        self._run_ids = itertools.count()
        self._errors: list[tuple[int, bytes]] = []
        self._calls = [
            _MAKE_ERROR(lambda given: self._errors.append((given[0].code, given[0].message)) or 1),
            _GET_STREAM(lambda given: setattr(given[0], "stream", self.stream)),
            _GET_RUN_ID(lambda given: setattr(given[0], "run_id", next(self._run_ids))),
            _GET_DEVICE(lambda given: setattr(given[0], "number", 0)),
        ]

    def array(self, content: Any) -> Array:
        return Array(np.asarray(content), self.stream)

    def call(
        self, target: str, arguments: Sequence[Array], results: Sequence[Array], attributes: dict[str, Any]
    ) -> None:
        """Run one step of a program. Raises ProgramError with what the step fails with."""
        make_error, get_stream, get_run_id, get_device = self._calls
        api = _Api(version=_Version(major=0, minor=3), make_error=make_error, get_stream=get_stream)
        api.get_run_id, api.get_device = get_run_id, get_device
        if not self.knows_its_number:
            api.struct_size -= c.sizeof(c.c_void_p)
        names, kinds, items = [], [], []
        numbers = {name: np.asarray(value) for name, value in attributes.items()}  # until the handler has returned
        for name, value in attributes.items():
            names.append(_Span(name.encode(), len(name.encode())))
            if isinstance(value, str):
                kinds.append(_STRING)
                items.append(_Span(value.encode(), len(value.encode())))
            else:
                kinds.append(_SCALAR)
                items.append(_Scalar(_TYPES[value.dtype.name], numbers[name].ctypes.data))
        described = _Attributes(
            size=len(names),
            kinds=(c.c_int32 * len(kinds))(*kinds),
            names=_pointers(_Span, names),
            items=(c.c_void_p * len(items))(*map(c.addressof, items)),
        )
        buffers = [self._buffers(arguments), self._buffers(results)]
        frame = _Frame(api=c.pointer(api), stage=3, arguments=buffers[0], results=buffers[1], attributes=described)
        handler = getattr(_plugin.library, target)
        handler.restype = c.c_void_p
        driver.enter()
        if handler(c.byref(frame)):
            code, message = self._errors.pop()
            raise ProgramError(f"{_CODES[code]}: {message.decode()}")

    def _buffers(self, arrays: Sequence[Array]) -> Any:
        items = [
            _Buffer(
                dtype=_TYPES[each.dtype.name],
                data=each.address,
                ndim=len(each.shape),
                shape=(c.c_int64 * len(each.shape))(*each.shape),
            )
            for each in arrays
        ]
        return _Buffers(size=len(items), items=_pointers(_Buffer, items))
