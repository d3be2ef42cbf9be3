"""Programs in C and C++ that are loaded into this process, for the conformance suite: `on_c` and `on_native`.

A program is built from program/ when the suite begins. Its tensors are NumPy arrays, of which it sees the memory.
"""

from __future__ import annotations

import ctypes as c
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from framework import Array, Call, Framework, numpy_dtype

import ciranda
from ciranda import _core, errors
from ciranda.process_sets import id_of

_SOURCES = Path(__file__).with_name("program")
_FLAGS = [
    "-shared",
    "-fPIC",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wconversion",
    "-pthread",
    "-DCIRANDA_USE_TABLE",
]
_ERRORS = [None, errors.InvalidArgumentError, errors.MismatchError, errors.RanksLostError]
_ERRORS += [errors.TimeoutError, errors.AbortedError, errors.InternalError]
_DIVIDE_BY_ALL, _NEEDS_ALL = 4, 32  # CIRANDA_REQUEST_...
#: The folder of the libraries, for ranks.
FOLDER = "SUITE_PROGRAMS"


def build(folder: Path) -> None:
    """Compile the programs against the headers that the package brings."""
    include = ["-I", ciranda.get_include(), "-I", str(_SOURCES)]
    compilers = []
    for source, name in (("program.c", "c"), ("native.cc", "native"), ("rough.cc", "rough")):
        language = ["cc", "-std=c11"] if source.endswith(".c") else ["c++", "-std=c++20"]
        files = [str(_SOURCES / source), "-o", str(folder / f"{name}.so")]
        command = [*language, *_FLAGS, *include, *files]
        compilers.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for compiler in compilers:
        _, said = compiler.communicate()
        assert compiler.returncode == 0, said


class _Tensor(c.Structure):
    _fields_ = (
        ("input", c.c_void_p),
        ("output", c.c_void_p),
        ("shape", c.POINTER(c.c_int64)),
        ("ndim", c.c_int32),
        ("dtype", c.c_int32),
        ("splits", c.POINTER(c.c_int64)),
        ("splits_count", c.c_size_t),
        ("device_type", c.c_int32),
        ("device", c.c_int32),
        ("stream", c.c_void_p),
    )


class _Request(c.Structure):
    _fields_ = (
        ("collective", c.c_int32),
        ("op", c.c_int32),
        ("root", c.c_int32),
        ("process_set", c.c_uint32),
        ("flags", c.c_uint32),
        ("prescale", c.c_double),
        ("postscale", c.c_double),
        ("name", c.c_char_p),
        ("tensors", c.POINTER(_Tensor)),
        ("tensors_count", c.c_size_t),
    )


class _Output(c.Structure):
    _fields_ = (
        ("data", c.c_void_p),
        ("n_bytes", c.c_size_t),
        ("shape", c.POINTER(c.c_int64)),
        ("ndim", c.c_int32),
    )


def _open(name: str) -> c.CDLL:
    library = c.CDLL(str(Path(os.environ[FOLDER]) / f"{name}.so"))
    for function, result, arguments in (
        ("start", c.c_char_p, [c.c_void_p]),
        ("submit", c.c_void_p, [c.POINTER(_Request)]),
        ("wait", c.c_int32, [c.c_void_p]),
        ("message", c.c_char_p, [c.c_void_p]),
        ("outputs_count", c.c_size_t, [c.c_void_p]),
        ("output", _Output, [c.c_void_p, c.c_size_t]),
        ("value", c.c_int64, [c.c_void_p]),
        ("release", None, [c.c_void_p]),
        ("live", c.c_int64, []),
    ):
        pointer = getattr(library, f"suite_{function}")
        pointer.restype, pointer.argtypes = result, arguments
    problem = library.suite_start(ciranda.get_c_table_address())
    assert problem is None, problem
    return library


@dataclass
class _Pending:
    """A call under way, and what its memory is in."""

    call: Call
    handle: int
    inputs: list[Array]
    outputs: list[Array]
    keeps: list[Any] = field(default_factory=list)


class Program(Framework):
    """A program, driven through ctypes."""

    program = ""

    @cached_property
    def _library(self) -> c.CDLL:
        return _open(self.program)

    @cached_property
    def ops(self) -> Any:  # type: ignore[override]
        """The functions that the suite calls by name."""
        moves = {name: self._single(name) for name in ("allreduce", "allgather")}
        return SimpleNamespace(**moves, join=self._join)

    def _single(self, function: str) -> Callable[..., Array]:
        return lambda tensor, **options: self.blocking(Call(function, "single", [tensor], options))[0]

    def _join(self) -> int:
        pending = self._submit(Call("join", "single", [], {}))
        try:
            return self._end(pending) or int(self._library.suite_value(pending.handle))
        finally:
            self._library.suite_release(pending.handle)

    def make(self, array: Array) -> Array:
        return np.array(array)

    def read(self, tensor: Array) -> Array:
        return tensor

    def has(self, function: str) -> bool:
        return function.removeprefix("grouped_").removesuffix("_") in _core.COLLECTIVES

    def live_calls(self) -> int:
        return int(self._library.suite_live())

    def together(self, calls: Sequence[Call]) -> list[list[Any]]:
        pending = [self._submit(call) for call in calls]
        problems = []
        for each in pending:  # of all: their memory must not go away while others use it
            try:
                self._end(each)
            except errors.CirandaError as error:
                problems.append(error)
        results = [] if problems else [self._results(each) for each in pending]
        for each in pending:
            self._library.suite_release(each.handle)
        if problems:
            raise problems[0]
        return results

    def blocking(self, call: Call) -> list[Any]:
        return self.together([call])[0]

    # --- one call

    def _submit(self, call: Call) -> _Pending:
        options = call.options
        inputs = [np.ascontiguousarray(array) if array.ndim else array for array in call.tensors]
        allocates = call.function not in ("allreduce", "broadcast", "reduce", "scan")
        outputs = [] if allocates else inputs if call.form == "in place" else [np.empty_like(each) for each in inputs]
        tensors = (_Tensor * len(inputs))()
        keeps: list[Any] = [tensors]
        splits = options.get("splits")
        for index, (tensor, array) in enumerate(zip(tensors, inputs, strict=True)):
            shape = (c.c_int64 * array.ndim)(*array.shape)
            dtype = _core.DATA_TYPES[array.dtype.name]
            tensor.input, tensor.shape, tensor.ndim, tensor.dtype = array.ctypes.data, shape, array.ndim, dtype
            tensor.output = outputs[index].ctypes.data if outputs else None
            if splits is not None:
                numbers = splits[index] if call.form == "grouped" else splits
                tensor.splits = (c.c_int64 * len(numbers))(*numbers)
                tensor.splits_count = len(numbers)
            keeps += [shape, tensor.splits]
        place = id_of(options.get("process_set", ciranda.global_process_set))
        flags = _DIVIDE_BY_ALL if options.get("divisor") == "world" else 0
        request = _Request(
            _core.COLLECTIVES[call.function],
            options.get("op", ciranda.Average),
            options.get("root_rank", -1),
            place & 0xFFFFFFFF,
            flags | (_NEEDS_ALL if place >> 63 else 0),
            options.get("prescale_factor", 1.0),
            options.get("postscale_factor", 1.0),
            options["name"].encode() if "name" in options else None,
            tensors,
            len(inputs),
        )
        handle = self._library.suite_submit(c.byref(request))
        return _Pending(call, handle, inputs, outputs, keeps)

    def _end(self, pending: _Pending) -> int:
        status = self._library.suite_wait(pending.handle)
        if status != 0:
            kind = _ERRORS[status]
            assert kind is not None
            raise kind(self._library.suite_message(pending.handle).decode())
        return 0

    def _results(self, pending: _Pending) -> list[Array]:
        call = pending.call
        if call.function in ("reduce", "gather") and call.options["root_rank"] != ciranda.rank():
            return []
        if pending.outputs:
            return pending.outputs
        return [self._output(pending, index) for index in range(len(pending.inputs))]

    def _output(self, pending: _Pending, index: int) -> Array:
        assert self._library.suite_outputs_count(pending.handle) > index
        output = self._library.suite_output(pending.handle, index)
        dtype = numpy_dtype(pending.inputs[index].dtype.name)
        data = c.string_at(output.data, output.n_bytes) if output.n_bytes else b""
        return np.frombuffer(data, dtype).reshape(output.shape[: output.ndim])
