"""Compile the GPU kernels (cpp/backend/cuda/kernels) by NVRTC, into one file that CMake embeds in the engine.

`python tools/make_cubins.py OUTPUT` writes machine code for each architecture of ARCHITECTURES, and PTX, which drivers
compile for later ones. It needs NVRTC 12, of which it takes, in this order, the one that `--nvrtc` or the environment's
CIRANDA_NVRTC names, that of the package nvidia-cuda-nvrtc-cu12, and that of the system; it needs neither a GPU nor a
driver. NVRTC 13 does not do: drivers before 580 refuse its code. `--check` compiles the PTX only and examines it, as
OUTPUT does before it writes: no multiplication may be contracted with an addition, since the bits would then differ
from those of the host. Without NVRTC it prints "SKIPPED: ..." and exits with 77. `--find` prints the path of NVRTC.
`--architectures 90` writes machine code for these alone, and no PTX: for tests.

The file is an array of rows (kernels/images.cc) and then the images, each at a multiple of 16 bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import re
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "backend/cuda/kernels/program.inc"

#: Compute capabilities, times ten. A GPU runs code for its own major number and a minor number that is not larger. For
#: 8.9 NVRTC makes the instructions of 8.6, byte for byte.
ARCHITECTURES = (70, 75, 80, 86, 90, 100, 120)
#: The oldest whose PTX serves all GPUs that none of these serves: those of 11.0, and from 13.0 on.
PTX_ARCHITECTURE = 100

OPTIONS = ("--std=c++20", "--fmad=false", "--device-int128", "--device-as-default-execution-space")
#: NVRTC has no headers of the C++ library.
HEADERS = {
    "cstdint": "namespace std {"
    "using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long long;"
    "using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned;"
    "using uint64_t = unsigned long long; using uintptr_t = unsigned long long; }\n"
}

SKIPPED = 77
_LIBRARY = "libnvrtc.so.12"
_ROW = struct.Struct("<IIQQ")  # architecture, whether it is PTX, offset, bytes
_ALIGNMENT = 16

#: Instructions that round once for a product and a sum; and those without a rounding mode, which may become such.
_CONTRACTED = re.compile(r"\b(?:fma|mad)\.[a-z0-9.]*f(?:16|32|64)\b|\b(?:add|sub|mul)(?:\.ftz|\.sat)*\.f(?:32|64)\b")


def nvrtc_paths(named: str | None) -> Iterator[Path]:
    """Yield where NVRTC may be: what was named alone, or the package's place and the usual ones of the system."""
    if named:
        yield Path(named)
        return
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        yield Path(folder) / "cuda_nvrtc" / "lib" / _LIBRARY
    for folder in ("/usr/local/cuda/lib64", *(f"/usr/local/cuda-12.{minor}/lib64" for minor in range(9, -1, -1))):
        yield Path(folder) / _LIBRARY


def find_nvrtc(named: str | None) -> Path | None:
    """Return the path of NVRTC, or None."""
    return next((path for path in nvrtc_paths(named or os.environ.get("CIRANDA_NVRTC")) if path.is_file()), None)


class Nvrtc:
    """The library NVRTC, by its C interface."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def version(self) -> str:
        """Return its version, as 12.9."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, target: str) -> bytes:
        """Return the program for `target`: machine code for sm_NN, PTX for compute_NN."""
        options = [f"--gpu-architecture={target}", *OPTIONS, f"-I{ROOT / 'cpp'}"]
        program = ctypes.c_void_p()
        source = f'#include "{PROGRAM}"\n'.encode()
        self._library.nvrtcCreateProgram(
            ctypes.byref(program),
            source,
            b"kernels.cu",
            len(HEADERS),
            _strings(HEADERS.values()),
            _strings(HEADERS),
        )
        status = self._library.nvrtcCompileProgram(program, len(options), _strings(options))
        if status != 0:
            log = self._get(program, "ProgramLog").decode(errors="replace")
            raise SystemExit(f"NVRTC cannot compile the kernels for {target}:\n{log}")
        code = self._get(program, "CUBIN" if target.startswith("sm_") else "PTX")
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return code

    def _get(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, text)
        return text.raw


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def contracted(ptx: str) -> list[str]:
    """Return the instructions that are, or may become, a contraction of a product and a sum."""
    return sorted({match[0] for match in _CONTRACTED.finditer(ptx)})


def make_ptx(nvrtc: Nvrtc) -> bytes:
    """Return the PTX, or exit if it has contractions."""
    ptx = nvrtc.compile(f"compute_{PTX_ARCHITECTURE}")
    if found := contracted(ptx.decode(errors="replace")):
        raise SystemExit(f"the kernels' results would differ from the host's: the PTX has {', '.join(found)}")
    return ptx


def packed(images: list[tuple[int, bool, bytes]]) -> bytes:
    """Return the file of these images: architecture, whether it is PTX, code."""
    head_bytes = _ROW.size * (len(images) + 1)
    rows, code = b"", b""
    for architecture, is_ptx, image in images:
        code += bytes(-(head_bytes + len(code)) % _ALIGNMENT)
        rows += _ROW.pack(architecture, is_ptx, head_bytes + len(code), len(image))
        code += image
    return rows + _ROW.pack(0, 0, 0, 0) + code


def main(arguments: list[str]) -> int:
    """Write the file of images, or check the PTX; return the exit status."""
    parser = argparse.ArgumentParser(description="Compile the GPU kernels.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("output", nargs="?", type=Path)
    what.add_argument("--check", action="store_true", help="examine the PTX")
    what.add_argument("--find", action="store_true", help="print the path of NVRTC")
    parser.add_argument("--nvrtc", help=f"path of {_LIBRARY}")
    parser.add_argument("--architectures", nargs="+", type=int, help="compile for these alone", metavar="NN")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)

    path = find_nvrtc(options.nvrtc)
    if options.find:
        print(path or "")
        return 0
    if path is None:
        print("SKIPPED: no NVRTC 12 is found (package nvidia-cuda-nvrtc-cu12): the kernels' PTX is not examined")
        return SKIPPED if options.check else 1
    nvrtc = Nvrtc(path)
    began = time.monotonic()
    if options.check:
        print(f"make_cubins: no contraction in {len(make_ptx(nvrtc)):,} bytes of PTX by NVRTC {nvrtc.version()}")
        return 0
    architectures = options.architectures or ARCHITECTURES
    with ThreadPoolExecutor(options.jobs) as pool:
        ptx = None if options.architectures else pool.submit(make_ptx, nvrtc)
        cubins = pool.map(lambda architecture: nvrtc.compile(f"sm_{architecture}"), architectures)
        images = [(architecture, False, image) for architecture, image in zip(architectures, cubins, strict=True)]
        if ptx is not None:
            images.append((PTX_ARCHITECTURE, True, ptx.result()))
    options.output.write_bytes(packed(images))
    for architecture, is_ptx, image in images:
        print(f"  {'compute' if is_ptx else 'sm'}_{architecture}: {len(image):,} bytes")
    size = options.output.stat().st_size
    print(f"make_cubins: {size:,} bytes by NVRTC {nvrtc.version()} in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
