"""One engine in a process: Python and a binding in C share the world, and a second engine is refused."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda import _core
from ciranda._basics import engine

pytestmark = pytest.mark.multiprocess

_OK, _INVALID_ARGUMENT, _MISMATCH, _ABORTED = 0, 1, 2, 5
_LIBRARY = Path(_core.__file__).parent / "lib" / "libciranda.so"
_ALONE = {name: value for name, value in os.environ.items() if not name.startswith(("CIRANDA_", "HOROVOD_"))}


class Binding:
    """The program one_engine.c in this process."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def use(self) -> None:
        assert self.try_to_use() == ""

    def try_to_use(self) -> str:
        message = ctypes.create_string_buffer(512)
        self._library.use(ctypes.c_void_p(hvd.get_c_table_address()), message, 512)
        return message.value.decode()

    def join(self) -> str:
        message = ctypes.create_string_buffer(512)
        self._library.join(message, 512)
        return message.value.decode()

    def leave(self) -> None:
        self._library.leave()

    def leave_current(self) -> None:
        self._library.leave_current()

    def size(self) -> int:
        return int(self._library.size_now())

    def sum(self, name: str, values: np.ndarray[Any, Any]) -> tuple[int, str]:
        message = ctypes.create_string_buffer(512)
        memory = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        status = self._library.sum(name.encode(), memory, ctypes.c_int64(values.size), message, 512)
        return int(status), message.value.decode()


def _build(folder: Path, include: str) -> str:
    """The path of the program as a shared library that links nothing."""
    path = str(folder / "one_engine.so")
    source = str(Path(__file__).with_name("one_engine.c"))
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-DCIRANDA_USE_TABLE"]
    subprocess.run(["cc", *flags, "-I", include, source, "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def binding(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _build(tmp_path_factory.mktemp("binding"), hvd.get_include())


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    with Ranks(2, initialize=False) as made:
        yield made


def _python_first(path: str) -> None:
    c = Binding(path)
    c.use()
    assert c.size() == -1
    for _ in range(2):
        hvd.init()
        assert c.size() == 2
        # One rank by C, the other by NumPy: the same names.
        values = np.full(3, hvd.rank() + 1, np.float32)
        if hvd.rank() == 0:
            assert c.sum("shared", values) == (_OK, "")
        else:
            hvd.allreduce_(values, name="shared", op=hvd.Sum)
        assert values.tolist() == [3, 3, 3]
        # And the same errors.
        values = np.ones(2 + hvd.rank(), np.float32)
        if hvd.rank() == 0:
            status, message = c.sum("unequal", values)
            assert status == _MISMATCH
        else:
            with pytest.raises(hvd.errors.MismatchError) as told:
                hvd.allreduce_(values, name="unequal", op=hvd.Sum)
            message = str(told.value)
        assert "unequal" in message
        assert "[2]" in message
        assert "[3]" in message
        hvd.shutdown()
        assert c.size() == -1


def test_c_is_in_the_world_that_python_joins(ranks: Ranks, binding: str) -> None:
    ranks.run(_python_first, binding)


def _record_both(path: str, timeline: str) -> Counter[str]:
    c = Binding(path)
    c.use()
    hvd.init()
    recording = engine().record()
    hvd.start_timeline(timeline)
    values = np.ones(1, np.float32)
    for _ in range(3):
        assert c.sum("of c", values) == (_OK, "")
        hvd.allreduce_(values, name="of python")
    hvd.stop_timeline()
    names = Counter(row[0] for row in recording.read())
    hvd.shutdown()
    return names


def test_a_timeline_has_the_calls_of_c(ranks: Ranks, binding: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline"
    assert ranks.run(_record_both, binding, str(path)) == [{"of c": 3, "of python": 3}] * 2
    events = Counter((event["name"], event["args"].get("tensor")) for event in json.loads(path.read_text()))
    for tensor in ("allreduce.of c", "allreduce.of python"):
        assert events["NEGOTIATE_ALLREDUCE", tensor] == 3
        assert events["ALLREDUCE", tensor] == 3


def _c_first(path: str) -> None:
    c = Binding(path)
    c.use()
    assert c.join() == ""
    assert not hvd.is_initialized()
    hvd.init()
    assert (hvd.size(), c.size()) == (2, 2)
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).tolist() == [2]
    everyone_in = hvd.add_process_set([0])
    assert everyone_in.size() == 1
    c.leave()
    assert not hvd.is_initialized()
    with pytest.raises(hvd.errors.AbortedError):
        hvd.allreduce(np.ones(1), op=hvd.Sum)
    assert everyone_in.process_set_id is not None
    hvd.init()  # a world of Python's own; their numbers go on
    assert everyone_in.process_set_id is None
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).tolist() == [2]
    c.leave_current()
    assert not hvd.is_initialized()
    assert c.join() == ""
    assert c.sum("again", np.ones(1, np.float32)) == (_OK, "")
    c.leave()
    hvd.init()
    hvd.shutdown()


def test_python_is_in_the_world_that_c_joins(ranks: Ranks, binding: str) -> None:
    ranks.run(_c_first, binding)


def test_a_binding_of_newer_headers_is_refused_and_says_both_versions(tmp_path: Path) -> None:
    newer = tmp_path / "include"
    shutil.copytree(hvd.get_include(), newer)
    header = newer / "ciranda" / "ciranda.h"
    text = header.read_text()
    version = int(re.search(r"#define CIRANDA_ABI_VERSION (\d+)", text)[1])  # type: ignore[index]
    header.write_text(text.replace(f"CIRANDA_ABI_VERSION {version}", f"CIRANDA_ABI_VERSION {version + 1}"))
    told = Binding(_build(tmp_path, str(newer))).try_to_use()
    assert f"compiled with version {version + 1} of ciranda's C headers" in told
    assert f"has version {version} " in told


def _run(program: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env={**_ALONE, **env}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_LIBRARIES = """
import ctypes, sys

class Library:
    def __init__(self, path, **how):
        self.functions = ctypes.CDLL(path, **how)
        self.world = ctypes.c_void_p()

    def join(self):
        message = ctypes.create_string_buffer(2048)
        self.functions.ciranda_init(None, ctypes.byref(self.world), message, 2048)
        return message.value.decode()

    def leave(self):
        self.functions.ciranda_shutdown(self.world)
"""


def _copy(folder: Path, of_another_build: bool = False, by_another_name: bool = False) -> Path:
    """A copy of the library, changed to what another build, or another package, would have."""
    content = _LIBRARY.read_bytes()
    if of_another_build:
        private = re.search(rb"CIRANDA_PRIVATE_\w+", content)
        assert private is not None
        content = content.replace(private[0], private[0][:-8] + b"another_")
    if by_another_name:
        content = content.replace(b"libciranda.so\0", b"libcirandb.so\0")
    path = folder / "a_copy.so"
    path.write_bytes(content)
    return path


def test_a_second_copy_of_the_library_is_refused_until_the_first_has_left(tmp_path: Path) -> None:
    copied = _copy(tmp_path)
    program = f"""{_LIBRARIES}
first, second = Library({str(_LIBRARY)!r}, mode=ctypes.RTLD_GLOBAL), Library({str(copied)!r})
assert first.join() == ""
refusal = second.join()
assert "another engine" in refusal and {str(_LIBRARY)!r} in refusal, refusal
first.leave()
assert second.join() == ""
assert {str(copied)!r} in first.join()
second.leave()
"""
    _run(program)
    _run(program, LD_PRELOAD=f"{copied}:{_LIBRARY}")


def test_the_engine_of_python_is_that_of_the_library() -> None:
    program = f"""{_LIBRARIES}
import ciranda as hvd
functions = Library({str(_LIBRARY)!r}).functions
functions.ciranda_get_table.restype = functions.ciranda_current.restype = ctypes.c_void_p
assert functions.ciranda_get_table() == hvd.get_c_table_address()
hvd.init()
world = ctypes.c_void_p(functions.ciranda_current())
assert functions.ciranda_size(world) == 1
functions.ciranda_shutdown(world)
assert not hvd.is_initialized()
"""
    _run(program)
    _run(program, LD_PRELOAD=str(_LIBRARY))


def test_the_engine_of_python_and_a_copy_of_the_library_refuse_each_other(tmp_path: Path) -> None:
    copied = _copy(tmp_path, by_another_name=True)
    program = f"""{_LIBRARIES}
import ciranda as hvd
library = Library({str(copied)!r})
hvd.init()
refusal = library.join()
assert {str(_LIBRARY)!r} in refusal and "get_c_table" in refusal, refusal
hvd.shutdown()
assert library.join() == ""
try:
    hvd.init()
except hvd.errors.InvalidArgumentError as error:
    assert {str(copied)!r} in str(error), error
else:
    raise AssertionError("a second engine")
library.leave()
hvd.init()
"""
    _run(program)


def test_the_library_of_another_build_does_not_get_between(binding: str, tmp_path: Path) -> None:
    other = _copy(tmp_path, of_another_build=True, by_another_name=True)
    program = f"""
import ctypes, numpy, ciranda as hvd
c, other = ctypes.CDLL({binding!r}), ctypes.CDLL({str(other)!r})
other.ciranda_get_table.restype = ctypes.c_void_p
assert other.ciranda_get_table() != hvd.get_c_table_address()
assert c.use(ctypes.c_void_p(hvd.get_c_table_address()), None, 0) == 0
hvd.init()
assert c.size_now() == 1
assert other.ciranda_contexts_count() == 0
assert hvd.allreduce(numpy.ones(1), op=hvd.Sum).tolist() == [1]
"""
    _run(program, LD_PRELOAD=str(other))


def test_the_library_of_another_build_is_refused_in_place_of_pythons_own(tmp_path: Path) -> None:
    other = _copy(tmp_path, of_another_build=True)
    program = f"""
try:
    from ciranda import _core
except ImportError as error:
    for part in ({str(other)!r}, {_core.__file__!r}, {"Link the program with " + str(_LIBRARY)!r}, "LD_PRELOAD"):
        assert part in str(error), (part, error)
else:
    raise AssertionError("classes of two builds")
"""
    _run(program, LD_PRELOAD=str(other))


def test_the_library_of_another_build_in_the_path_of_libraries_is_passed_over(tmp_path: Path) -> None:
    _copy(tmp_path, of_another_build=True).rename(tmp_path / _LIBRARY.name)
    program = """
import ciranda as hvd
hvd.init()
"""
    _run(program, LD_LIBRARY_PATH=str(tmp_path))


def test_a_preloaded_library_does_not_get_between(binding: str) -> None:
    program = f"""
import ctypes, ciranda as hvd
c = ctypes.CDLL({binding!r})
assert c.use(ctypes.c_void_p(hvd.get_c_table_address()), None, 0) == 0
hvd.init()
assert c.size_now() == 1
"""
    _run(program, LD_PRELOAD=str(_LIBRARY))


def _symbols(path: str | Path, defined: bool = True) -> set[tuple[str, str]]:
    """The names and versions of what a shared library defines, or needs of others."""
    which = "--defined-only" if defined else "--undefined-only"
    command = ["nm", "--dynamic", which, "--format=posix", str(path)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {(row[0].partition("@")[0], row[0].rpartition("@")[2]) for row in rows if row[1] != "A"}


def test_the_c_abi_is_exported_and_what_pythons_extension_needs_and_nothing_else() -> None:
    headers = "".join(header.read_text() for header in (Path(hvd.get_include()) / "ciranda").glob("*.h"))
    declared = set(re.findall(r"^CIRANDA_API[^;(]*?(ciranda_\w+)\(", headers, re.M))
    assert len(declared) > 30
    needed = {row for row in _symbols(_core.__file__, defined=False) if row[1].startswith("CIRANDA_")}
    assert len(needed) > 30
    versions = {version for _, version in needed}
    assert len(versions) == 1
    assert versions.pop().startswith("CIRANDA_PRIVATE_")
    # The compiler exports a constructor, and a destructor, by two names: of whole objects and of bases.
    of_bases = {(re.sub("([CD])1E", r"\g<1>2E", name), version) for name, version in needed} - needed
    assert _symbols(_LIBRARY) - of_bases == {(name, "CIRANDA_1") for name in declared} | needed
    assert _symbols(_core.__file__) == {("PyInit__core", "CIRANDA_1")}


def test_the_capsule_is_the_table() -> None:
    name = b"ciranda._core.TABLE"
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    assert pointer(hvd.get_c_table(), name) == hvd.get_c_table_address()
    header = (Path(hvd.get_include()) / "ciranda" / "ciranda.h").read_text()
    version = re.search(r"CIRANDA_ABI_VERSION (\d+)", header)
    assert version is not None
    assert ctypes.c_uint32.from_address(hvd.get_c_table_address() + 8).value == int(version[1])
    assert f'"{name.decode()}"' in (Path(hvd.get_include()) / "ciranda" / "table.h").read_text()
