"""Where the files for C and C++ programs lie: the headers, the library and its CMake package."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def get_include() -> str:
    """Return the folder of `ciranda/ciranda.h` and `ciranda/ciranda.hpp`, for a compiler's -I."""
    return str(_HERE / "include")


def get_cmake_dir() -> str:
    """Return the folder of the CMake package, for -Dciranda_DIR: then `find_package(ciranda)` finds it."""
    return str(_HERE / "lib" / "cmake" / "ciranda")
