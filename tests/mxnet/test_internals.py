"""What of MXNet is relied on, beside what is public: these say what has changed, when they fail."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.base import _LIB
from mxnet.gluon import Parameter
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP, _DTYPE_NP_TO_MX

from ciranda.mxnet import _plugin, _versions
from ciranda.mxnet.arrays import number_of

ROOT = Path(__file__).parents[2]
HEADERS = Path(mx.__file__).parent / "include" / "mxnet"
FUNCTIONS = (
    *("GetLastError", "EnginePushAsyncND", "ShallowCopyNDArray", "NDArrayFree", "NDArrayGetData"),
    *("NDArrayGetShapeEx64", "NDArrayGetDType", "NDArrayGetContext", "NDArrayGetStorageType"),
    "NDArrayFromDLPackEx",
)

DLPACK_FIELDS = {
    "data": "dl_tensor.data",
    "device": "dl_tensor.ctx",
    "ndim": "dl_tensor.ndim",
    "type": "dl_tensor.dtype",
    "shape": "dl_tensor.shape",
    "strides": "dl_tensor.strides",
    "byte_offset": "dl_tensor.byte_offset",
    "manager": "manager_ctx",
    "give_back": "deleter",
}


def test_our_declarations_are_those_of_the_installed_header() -> None:
    lines = ["#include <mxnet/c_api.h>", "#include <type_traits>", '#include "bindings/mxnet/mx_api.hpp"']
    lines += [
        f'static_assert(std::is_same_v<decltype(ciranda::mxnet::MxApi::{name}), decltype(&MX{name})>, "MX{name}");'
        for name in FUNCTIONS
    ]
    lines += ["#include <dlpack/dlpack.h>", "#include <cstddef>", "using Ours = ciranda::mxnet::DlManagedTensor;"]
    lines += ["static_assert(sizeof(Ours) == sizeof(DLManagedTensor));"]
    lines += [
        f"static_assert(offsetof(Ours, {ours}) == offsetof(DLManagedTensor, {theirs}));"
        for ours, theirs in DLPACK_FIELDS.items()
    ]
    lines += ["static_assert(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLBfloat == 4 && kDLCPU == 1);"]
    command = [
        "c++",
        "-std=c++20",
        "-x",
        "c++",
        "-fsyntax-only",
        "-I",
        str(HEADERS.parent),
        "-I",
        str(ROOT / "cpp"),
        "-",
    ]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


def test_our_numbers_are_those_of_the_installed_mxnet() -> None:
    table = (ROOT / "cpp/bindings/mxnet/tables.hpp").read_text()
    ours = {name.lower(): int(number) for name, number in re.findall(r"\{CIRANDA_(\w+), (\d+)\}", table)}
    theirs = {np.dtype(kind).name: number for kind, number in _DTYPE_NP_TO_MX.items() if kind is not None}
    assert ours.pop("bfloat16") == bfloat16_number()
    assert ours == {name: number for name, number in theirs.items() if name in ours}
    engine = (HEADERS / "engine.h").read_text()
    names = re.findall(
        r"^  (k\w+),?$", re.search(r"enum class FnProperty \{(.*?)\}", engine, re.DOTALL)[1], re.MULTILINE
    )
    declared = (ROOT / "cpp/bindings/mxnet/mx_api.hpp").read_text()
    assert f"kAsync = {names.index('kAsync')};" in declared
    completion = re.search(r"class CallbackOnComplete \{.*?\n\};", engine, re.DOTALL)[0]
    fields = re.findall(r"^  (void \(\*callback_\)\(.*\)|\w+\* \w+_);$", completion, re.MULTILINE)
    assert [re.sub(r".*?(\w+_).*", r"\1", field) for field in fields] == ["callback_", "engine_", "param_"]


def bfloat16_number() -> int:
    return next(number for number, kind in _DTYPE_MX_TO_NP.items() if kind == np.dtype([("bfloat16", np.uint16)]))


def test_arrays_begin_with_their_memory() -> None:
    """What tells arrays that share memory, and so are one variable of the engine."""

    def first_word(array: mx.nd.NDArray) -> int:
        word = ctypes.cast(array.handle, ctypes.POINTER(ctypes.c_void_p)).contents.value
        assert word is not None
        return word

    one, other = mx.nd.ones((4, 2)), mx.nd.ones((4, 2))
    assert first_word(one) == first_word(one[1:3]) == first_word(one.reshape((8,)))
    assert first_word(one) != first_word(other)


def test_an_arrays_memory_has_its_variable_where_the_plugin_looks() -> None:
    """A variable of the engine's class, which counts what is written to the array."""
    declared = (ROOT / "cpp/bindings/mxnet/mx_api.hpp").read_text()
    place = int(re.search(r"kVariableAt = (\d+);", declared)[1])
    table = ctypes.addressof(ctypes.c_char.in_dll(_LIB, "_ZTVN5mxnet6engine11ThreadedVarE")) + 2 * 8
    for array in (mx.nd.ones((4, 2)), mx.np.ones((3,)), mx.nd.ones((4, 2)).tostype("row_sparse")):
        array.wait_to_read()
        memory = ctypes.cast(array.handle, ctypes.POINTER(ctypes.c_void_p)).contents.value
        assert memory is not None
        variable = ctypes.c_void_p.from_address(memory + place).value
        assert variable is not None
        assert ctypes.c_void_p.from_address(variable).value == table
        _plugin.note_raised(array, "CirandaAborted: of the test")
        for _ in range(2):
            assert _plugin.failure_of(array) == "CirandaAborted: of the test"
            array.copy().wait_to_read()
        array[:] = array.copy()
        mx.nd.waitall()
        assert _plugin.failure_of(array) == ""


def test_the_library_is_found_by_its_name() -> None:
    assert Path(_LIB._name).name == "libmxnet.so"
    assert ctypes.CDLL("libmxnet.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)._handle == _LIB._handle


def test_parameters_are_initialized_by_one_method() -> None:
    assert "_init_impl" in vars(Parameter)
    assert _plugin.describe().startswith(f"MXNet {mx.__version__}: all symbols found")


def test_a_numpy_that_mxnet_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.26.4" if name == "numpy" else "1.9.1")
    with pytest.raises(ImportError, match=r"numpy 1\.26\.4, which lacks np\.bool.*numpy==1\.23\.5"):
        _versions.check()


def test_an_mxnet_of_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mxnet-mkl, or one that the user has built, of which pip knows nothing."""
    installed = {"numpy": np.__version__, "mxnet-mkl": "1.6.0"}
    monkeypatch.setattr("importlib.metadata.version", installed.__getitem__)
    assert _versions.check() == mx.__version__
    installed["numpy"] = "1.26.4"
    for distributions, known in (({"mxnet": ["mxnet-mkl"]}, "1.6.0"), ({}, "of unknown version")):
        monkeypatch.setattr("importlib.metadata.packages_distributions", lambda found=distributions: found)
        with pytest.raises(ImportError, match=rf"MXNet {known} cannot be used with numpy 1\.26\.4"):
            _versions.check()


def test_each_thread_has_memory_of_its_own_for_what_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native part fills it while other threads run, of which several may lend."""
    filled: list[int] = []

    def fetch(room: Any, count: int) -> int:
        filled.append(ctypes.addressof(room))
        return 0

    class Library:
        ciranda_mxnet_fetch_given_back = staticmethod(fetch)
        ciranda_mxnet_lend = _plugin.library.ciranda_mxnet_lend

    monkeypatch.setattr(_plugin, "library", Library)
    both = threading.Barrier(2)

    def lend() -> None:
        both.wait()
        assert _plugin.lend(np.ones(4, "float32"), number_of("float32")) is not None
        both.wait()

    threads = [threading.Thread(target=lend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(filled)) == 2, filled
