"""What of JAX and XLA is relied on, beside what is public: these say what has changed, when they fail."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import jax
import jax.ffi
import pytest
from jax._src import core, effects
from jax._src.interpreters import partial_eval
from jax.interpreters import ad, batching, mlir

from ciranda.jax import _uses, _versions

ROOT = Path(__file__).parents[2]
HEADER = Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"

# Ours and theirs, field by field.
PAIRS = {
    "Frame": (
        "XLA_FFI_CallFrame",
        {"api": "api", "context": "ctx", "stage": "stage", "arguments": "args", "results": "rets"}
        | {"attributes": "attrs", "future": "future"},
    ),
    "Buffers": ("XLA_FFI_Args", {"size": "size", "kinds": "types", "items": "args"}),
    "Attributes": ("XLA_FFI_Attrs", {"size": "size", "kinds": "types", "names": "names", "items": "attrs"}),
    "Buffer": ("XLA_FFI_Buffer", {"dtype": "dtype", "data": "data", "ndim": "rank", "shape": "dims"}),
    "Scalar": ("XLA_FFI_Scalar", {"dtype": "dtype", "value": "value"}),
    "Span": ("XLA_FFI_ByteSpan", {"data": "ptr", "size": "len"}),
    "Version": ("XLA_FFI_Api_Version", {"major": "major_version", "minor": "minor_version"}),
    "Metadata": ("XLA_FFI_Metadata", {"version": "api_version", "traits": "traits"}),
    "MetadataExtension": ("XLA_FFI_Metadata_Extension", {"base": "extension_base", "metadata": "metadata"}),
    "MakeError": ("XLA_FFI_Error_Create_Args", {"message": "message", "code": "errc"}),
    "MakeFuture": ("XLA_FFI_Future_Create_Args", {"future": "future"}),
    "EndFuture": ("XLA_FFI_Future_SetAvailable_Args", {"future": "future"}),
    "FailFuture": ("XLA_FFI_Future_SetError_Args", {"future": "future", "error": "error"}),
    "GetStream": ("XLA_FFI_Stream_Get_Args", {"context": "ctx", "stream": "stream"}),
    "GetRunId": ("XLA_FFI_RunId_Get_Args", {"context": "ctx", "run_id": "run_id"}),
    "Api": (
        "XLA_FFI_Api",
        {"version": "api_version", "make_error": "XLA_FFI_Error_Create", "make_future": "XLA_FFI_Future_Create"}
        | {"end_future": "XLA_FFI_Future_SetAvailable", "fail_future": "XLA_FFI_Future_SetError"}
        | {"get_run_id": "XLA_FFI_RunId_Get", "get_stream": "XLA_FFI_Stream_Get"},
    ),
}
# What the oldest has not, and programs for GPUs need.
NEWER_PAIRS = {
    "GetDevice": ("XLA_FFI_DeviceOrdinal_Get_Args", {"context": "ctx", "number": "device_ordinal"}),
    "Api": ("XLA_FFI_Api", {"get_device": "XLA_FFI_DeviceOrdinal_Get"}),
}
CONSTANTS = {
    "kMetadata": "XLA_FFI_Extension_Metadata",
    "kScalar": "XLA_FFI_AttrType_SCALAR",
    "kString": "XLA_FFI_AttrType_STRING",
    "kInvalidArgument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "kUnavailable": "XLA_FFI_Error_Code_UNAVAILABLE",
    "kFailedPrecondition": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
    "kPred": "XLA_FFI_DataType_PRED",
    "kBf16": "XLA_FFI_DataType_BF16",
    "kC128": "XLA_FFI_DataType_C128",
    "kF64": "XLA_FFI_DataType_F64",
    "kU64": "XLA_FFI_DataType_U64",
}


def test_our_structs_are_those_of_the_installed_jaxlib() -> None:
    has_newer = "XLA_FFI_DeviceOrdinal_Get_Args" in HEADER.read_text()
    newer = NEWER_PAIRS.items() if has_newer else ()
    lines = [
        f'static_assert(offsetof(ffi::{ours}, {mine}) == offsetof({theirs}, {field}), "{theirs}.{field}");'
        for ours, (theirs, fields) in (*PAIRS.items(), *newer)
        for mine, field in fields.items()
    ]
    lines += [f'static_assert(int(ffi::{a}) == int({b}), "{b}");' for a, b in CONSTANTS.items()]
    includes = ["<cstddef>", '"xla/ffi/api/c_api.h"', '"bindings/jax/ffi.hpp"']
    lines = [*(f"#include {each}" for each in includes), "namespace ffi = ciranda::jax::ffi;", *lines]
    program = "\n".join(lines) + "\n"
    command = ["c++", "-std=c++20", "-x", "c++", "-fsyntax-only", "-Wno-invalid-offsetof"]
    command += ["-I", jax.ffi.include_dir(), "-I", str(ROOT / "cpp"), "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_of_the_table() -> None:
    header = HEADER.read_text()
    major, minor = (re.search(rf"XLA_FFI_API_{which} (\d+)", header)[1] for which in ("MAJOR", "MINOR"))
    assert major == "0", "fields of XLA's structs may have moved: compare cpp/bindings/jax/ffi.hpp"
    assert int(minor) >= 1


@pytest.mark.parametrize(
    "name",
    [
        "lowerable_effects",
        "control_flow_allowed_effects",
        "custom_derivatives_allowed_effects",
        "remat_allowed_effects",
    ],
)
def test_effects_can_be_allowed(name: str) -> None:
    assert hasattr(getattr(effects, name), "add_type"), f"jax._src.effects.{name} has changed"


def test_what_primitives_are_made_with() -> None:
    assert hasattr(batching.primitive_batchers, "__setitem__")
    given = mlir.ModuleContext.__init__.__code__.co_varnames
    assert "cached_primitive_lowerings" in given, "names of unnamed calls are kept there"


@pytest.mark.parametrize("version", ["0.4.35", "0.3.0"])
def test_old_versions_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_versions.metadata, "version", lambda name: version)
    with pytest.raises(ImportError, match=f"jaxlib {version} is installed.*one after the other"):
        _versions.check()


def test_it_can_be_asked_whether_a_program_is_being_made() -> None:
    assert core.trace_state_clean()
    seen = []
    jax.eval_shape(lambda: seen.append(core.trace_state_clean()))
    assert seen == [False]


def test_functions_that_programs_use_can_be_copied() -> None:
    assert all(primitive in partial_eval.custom_staging_rules for primitive in _uses._USERS)
    assert hasattr(core.Jaxpr, "replace")
    assert hasattr(core.ClosedJaxpr, "replace")
    given = inspect.signature(partial_eval.DynamicJaxprTrace.default_process_primitive).parameters
    assert list(given)[1:] in (["primitive", "tracers", "params"], ["primitive", "tracers", "params", "source_info"])


def test_primitives_can_be_differentiated() -> None:
    tables = (ad.primitive_jvps, ad.primitive_transposes)
    assert all(hasattr(table, "__setitem__") for table in tables)
    assert hasattr(ad, "UndefinedPrimal")
    assert hasattr(ad, "Zero")
