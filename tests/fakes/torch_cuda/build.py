"""Compiles the fake driver, and the C++ part against the torch that is installed: once for each version of either."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
FAKES = HERE.parent
ROOT = HERE.parents[2]
KEPT = ROOT / "build" / "torch_cuda"
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
    unfinished = to.with_suffix(".unfinished")
    _run([*_compiler(), "-shared", "-pthread", *map(str, objects), *libraries, "-o", str(unfinished)])
    for each in objects:
        each.unlink()
    unfinished.rename(to)  # others see it once it is whole


def _built(name: str, sources: list[Path], options: list[str], libraries: list[str], depends_on: list[str]) -> Path:
    """Returns the shared library `name`. Processes that ask at once wait for one of them."""
    headers = [*FAKES.glob("*.hpp"), *HERE.glob("*.hpp")]
    folder = KEPT / _digest([name, *options, *depends_on], [*sources, *headers])
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / name
    if built.exists():
        return built
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _compile(sources, options, libraries, built)
    return built


def driver() -> Path:
    """Returns the fake `libcuda.so.1`, which is the same as the CMake target ciranda_fake_cuda."""
    kernels = _digest([], (ROOT / "cpp/backend/cuda/kernels").glob("*"))
    options = FLAGS + [f"-I{folder}" for folder in (FAKES, ROOT / "cpp", ROOT / "cpp/include", ROOT / "tests")]
    return _built("libcuda.so.1", [*FAKES.glob("*.cc")], options, [], [kernels])


def nccl() -> Path:
    """Returns the fake `libnccl.so.2`, which is the same as the CMake target ciranda_fake_nccl."""
    headers = _digest([], [*(FAKES / "nccl").glob("*.hpp"), ROOT / "cpp/backend/cuda/nccl_api.hpp"])
    options = FLAGS + [f"-I{folder}" for folder in (FAKES, ROOT / "cpp", ROOT / "cpp/include")]
    return _built("libnccl.so.2", [*(FAKES / "nccl").glob("*.cc")], options, ["-ldl"], [headers])


def library() -> Path:
    """Returns the C++ part."""
    torch = torch_folder()
    includes = [ROOT / "cpp", ROOT / "cpp/include", torch / "include", torch / "include/torch/csrc/api/include"]
    libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch / 'lib'}", "-ldl"]
    options = FLAGS + [f"-I{folder}" for folder in includes]
    return _built("torch_cuda.so", [*HERE.glob("*.cc")], options, libraries, [version("torch")])
