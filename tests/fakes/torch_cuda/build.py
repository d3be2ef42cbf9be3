"""Compiles the fake driver, and the C++ part against the torch that is installed: once for each version of either.

What CMake has built already is taken from there.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
FAKES = HERE.parent
ROOT = HERE.parents[2]
KEPT = ROOT / "build" / "torch_cuda"
BY_CMAKE = ROOT / "build/release/tests/cpp/fakes"
FLAGS = ["-std=c++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-w", "-pthread"]


def torch_folder() -> Path:
    """Where torch is, which is not imported for it."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError("torch is not installed")
    return Path(spec.origin).parent


def _compiler() -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise RuntimeError("the fake torch.cuda needs a C++ compiler: set CXX")
    cache = shutil.which("ccache")
    return [compiler] if cache is None else [cache, compiler]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _digest(parts: Iterable[str], files: Iterable[Path]) -> str:
    digest = hashlib.sha256(" ".join(parts).encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _compile(sources: Iterable[Path], options: list[str], libraries: list[str], to: Path) -> None:
    def compiled(source: Path) -> Path:
        made = to.parent / f"{source.stem}.o"
        _run([*_compiler(), *options, "-c", str(source), "-o", str(made)])
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sorted(sources)))
    _run([*_compiler(), "-shared", "-pthread", *map(str, objects), *libraries, "-o", str(to)])
    for each in objects:
        each.unlink()


def _compile_together(sources: Iterable[Path], options: list[str], libraries: list[str], to: Path) -> None:
    """As one source: headers that take longer than all else are read once."""
    together = to.with_name("together.cc")
    together.write_text("".join(f'#include "{source}"\n' for source in sorted(sources)))
    _compile([together], options, libraries, to)


def _kept(name: str, parts: Iterable[str], files: list[Path], make: Callable[[Path], object]) -> Path:
    """Returns the shared library `name`, which is made of these. Processes that ask at once wait for one of them."""
    folder = KEPT / _digest([name, *parts], files)
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / name
    if built.exists():
        return built
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            unfinished = built.with_suffix(".unfinished")
            make(unfinished)
            unfinished.rename(built)  # others see it once it is whole
    return built


def _fake(name: str, files: list[Path], options: list[str], libraries: list[str]) -> Path:
    """Returns a library that CMake builds, too: by itself, since programs find all that lies beside it."""
    by_cmake = BY_CMAKE / name

    def make(to: Path) -> None:
        if by_cmake.exists() and all(file.stat().st_mtime < by_cmake.stat().st_mtime for file in files):
            shutil.copyfile(by_cmake, to)
        else:
            _compile([file for file in files if file.suffix == ".cc"], options, libraries, to)

    return _kept(name, options, files, make)


def driver() -> Path:
    """Returns the fake `libcuda.so.1`, which is the same as the CMake target ciranda_fake_cuda."""
    files = [*FAKES.glob("*.cc"), *FAKES.glob("*.hpp"), *(ROOT / "cpp/backend/cuda/kernels").glob("*.[hi]*")]
    options = FLAGS + [f"-I{folder}" for folder in (FAKES, ROOT / "cpp", ROOT / "cpp/include", ROOT / "tests")]
    return _fake("libcuda.so.1", files, options, [])


def nccl() -> Path:
    """Returns the fake `libnccl.so.2`, which is the same as the CMake target ciranda_fake_nccl."""
    files = [*(FAKES / "nccl").glob("*"), *FAKES.glob("*.hpp"), ROOT / "cpp/backend/cuda/nccl_api.hpp"]
    options = FLAGS + [f"-I{folder}" for folder in (FAKES, ROOT / "cpp", ROOT / "cpp/include")]
    return _fake("libnccl.so.2", files, options, ["-ldl"])


def library() -> Path:
    """Returns the C++ part."""
    torch = torch_folder()
    includes = [ROOT / "cpp", ROOT / "cpp/include", torch / "include", torch / "include/torch/csrc/api/include"]
    libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch / 'lib'}", "-ldl"]
    options = FLAGS + [f"-I{folder}" for folder in includes]
    sources = [*HERE.glob("*.cc")]
    files = [*sources, *HERE.glob("*.hpp"), *FAKES.glob("*.hpp")]

    def make(to: Path) -> None:
        _compile_together(sources, options, libraries, to)

    return _kept("torch_cuda.so", [*options, version("torch")], files, make)
