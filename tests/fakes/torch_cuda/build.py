"""Compiles the C++ part against the torch that is installed, once for each version of both."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FLAGS = ["-std=c++20", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-w"]


def torch_folder() -> Path:
    """Where torch is, which is not imported for it."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256(" ".join([version("torch"), *FLAGS]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compiler() -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise RuntimeError("the fake torch.cuda needs a C++ compiler: set CXX")
    cache = shutil.which("ccache")
    return [compiler] if cache is None else [cache, compiler]


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr}")


def _compile(folder: Path) -> None:
    torch = torch_folder()
    includes = [ROOT / "cpp", ROOT / "cpp/include", torch / "include", torch / "include/torch/csrc/api/include"]
    options = FLAGS + [f"-I{include}" for include in includes]
    objects = []
    for source in sorted(HERE.glob("*.cc")):
        objects.append(folder / f"{source.stem}.o")
        _run([*_compiler(), *options, "-c", source, "-o", objects[-1]])
    library = torch / "lib"
    needed = [f"-L{library}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{library}", "-ldl"]
    _run([*_compiler(), "-shared", *objects, *needed, "-o", folder / "unfinished.so"])
    for each in objects:
        each.unlink()
    (folder / "unfinished.so").rename(folder / "torch_cuda.so")  # others see it once it is whole


def library() -> Path:
    """Returns the compiled library. Processes that ask at once wait for one of them."""
    sources = [*HERE.glob("*.cc"), *HERE.glob("*.hpp"), HERE.parent / "caller_kernel.hpp", HERE.parent / "exports.hpp"]
    folder = ROOT / "build" / "torch_cuda" / _digest(sorted(sources))
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / "torch_cuda.so"
    if built.exists():
        return built
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _compile(folder)
    return built
