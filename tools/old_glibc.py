"""Link the wheel so that it runs with a glibc as old as 2.28 (manylinux_2_28), whatever glibc this machine has.

`python tools/old_glibc.py make FOLDER` reads the libraries of the compiler that CXX names (c++), and writes to FOLDER
what to link against instead of them, by `-L FOLDER`:

- a stub of each of glibc's libraries, of libstdc++ and of libgcc_s: no code, only the symbols that a system with that
  glibc has, each of the newest version there. Linked against it, `pthread_create` becomes that of GLIBC_2.2.5, which
  every glibc has; that of the compiler's glibc is of GLIBC_2.34;
- libsince.a, with the few functions of later glibcs that the engine or the compiler's static libraries call
  (since_glibc_2_28.c);
- linker scripts under the names that the compiler links (libc.so, libstdc++.so, libpthread.so, ...). They take a
  symbol from the stub, or else from libsince.a or the compiler's static library. So std::filesystem is linked
  statically, and exceptions, streams and allocation remain those of the libstdc++ that the process shares.

What none of them has does not link. Compiling is the same as without it, and so are the objects.

`python tools/old_glibc.py check WHEEL...` names each symbol that a shared library of the wheel needs and that such a
system lacks, or that no library promises, and exits 1 if there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

#: The newest versions of symbols that manylinux_2_28 allows: those of Debian 10, Ubuntu 18.10 and RHEL 8.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}

#: Libraries that glibc 2.34 united with libc, with the names of what each had.
UNITED = {
    "libpthread.so.0": r"_*pthread_|sem_|thrd_|mtx_|cnd_|tss_|call_once",
    "libdl.so.2": r"dl",
    "librt.so.1": r"aio_|lio_|mq_|shm_|timer_",
    "libutil.so.1": r"openpty|forkpty|log(in|out|wtmp)",
}

#: Where the assembler is to put a symbol of each type, and how it names the type.
TYPES = {
    "FUNC": (".text", "function"),
    "OBJECT": (".data", "object"),
    "TLS": ('.section .tbss,"awT",%nobits', "tls_object"),
}

STATIC_LIBRARY_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


class Symbol(NamedTuple):
    """A symbol of a shared library, with its version, as `GLIBC_2.2.5`, or without."""

    name: str
    type: str
    version: str
    is_defined: bool
    is_default: bool
    is_weak: bool

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the version; none, if it is not made of numbers."""
        numbers = self.version.partition("_")[2].split(".")
        return tuple(map(int, numbers)) if all(map(str.isdigit, numbers)) else ()

    def is_allowed(self) -> bool:
        """Tell whether every system that the tag promises has it."""
        newest = NEWEST.get(self.version.partition("_")[0], ())
        return bool(self.numbers()) and self.numbers() <= newest


def symbols_of(library: Path) -> Iterator[Symbol]:
    """Yield the dynamic symbols of a shared library, without those that mark its versions."""
    table = subprocess.run(["readelf", "-W", "--dyn-syms", library], check=True, capture_output=True, text=True).stdout
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and fields[6] != "ABS":
            name, _, version = fields[7].partition("@")
            is_default = version.startswith("@")
            yield Symbol(name, fields[3], version.lstrip("@"), fields[6] != "UND", is_default, fields[4] == "WEAK")


def newest_allowed(symbols: list[Symbol]) -> list[Symbol]:
    """Return each symbol that is defined once, of the newest version that is allowed.

    One without a default version is left out: the library has it for what was linked long ago, as libgcc_s has
    __cpu_model, of which every library now takes its own from libgcc.a.
    """
    linked = {symbol.name for symbol in symbols if symbol.is_default}
    chosen: dict[str, Symbol] = {}
    for symbol in symbols:
        if symbol.is_defined and symbol.is_allowed() and symbol.name in linked:
            other = chosen.setdefault(symbol.name, symbol)
            if other.numbers() < symbol.numbers():
                chosen[symbol.name] = symbol
    return sorted(chosen.values())


def by_library(symbols_of_libc: list[Symbol]) -> dict[str, list[Symbol]]:
    """Sort what libc has by the libraries that had it before they were united with libc."""
    too_new = {symbol.name for symbol in symbols_of_libc if symbol.is_defined and not symbol.is_allowed()}
    sorted_: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in newest_allowed(symbols_of_libc):
        had = (library for library, names in UNITED.items() if re.match(names, symbol.name))
        sorted_[next(had, "libc.so.6") if symbol.name in too_new else "libc.so.6"].append(symbol)
    return sorted_


class Compiler:
    """The compiler whose libraries are read, and that makes the stubs."""

    def __init__(self, command: str) -> None:
        self._command = command.split()

    def find(self, library: str) -> Path:
        """Return the path of one of the libraries that it links."""
        found = Path(self.run(f"-print-file-name={library}"))
        if not found.is_absolute():
            sys.exit(f"old_glibc: {' '.join(self._command)} has no {library}")
        return found.resolve()

    def run(self, *arguments: str | Path) -> str:
        """Run it and return what it prints."""
        return subprocess.run(
            [*self._command, *arguments], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()


def make_stub(compiler: Compiler, path: Path, symbols: Iterable[Symbol]) -> None:
    """Write a shared library of that name, with those symbols and no code."""
    lines = ['.section .note.GNU-stack,"",%progbits']
    versions = defaultdict(list)
    for symbol in symbols:
        section, type_ = TYPES.get(symbol.type, TYPES["FUNC"])  # the others are functions chosen when they are loaded
        lines += [section, f".globl {symbol.name}", f".type {symbol.name}, %{type_}", f"{symbol.name}: .zero 16"]
        versions[symbol.version].append(symbol.name)
    source, script = path.with_suffix(".s"), path.with_suffix(".map")
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    nodes = (f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items())
    script.write_text("".join(nodes), encoding="utf-8")
    compiler.run("-shared", "-nostdlib", f"-Wl,-soname,{path.name},--version-script={script}", "-o", path, source)


def make(folder: Path, compiler: Compiler) -> None:
    """Write the stubs, the static library and the linker scripts to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = compiler.find("libc.so.6")
    loader = next(path for path in sorted(libc.parent.glob("ld-linux*.so.*")))
    stubs = by_library(list(symbols_of(libc)))
    stubs[loader.name] = newest_allowed(list(symbols_of(loader)))
    for name in UNITED:  # of which little is left there, unless this glibc is older than 2.34
        stubs[name] += newest_allowed(list(symbols_of(compiler.find(name))))
    in_need = " ".join(name for name in stubs if name != "libc.so.6")
    for name in ("libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"):
        stubs[name] = newest_allowed(list(symbols_of(compiler.find(name))))
    for name, symbols in stubs.items():
        make_stub(compiler, folder / name, symbols)

    source, built = Path(__file__).with_name("since_glibc_2_28.c"), folder / "since.o"
    compiler.run("-x", "c", *STATIC_LIBRARY_FLAGS, "-c", "-o", built, source)
    (folder / "libsince.a").unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", folder / "libsince.a", built], check=True)

    scripts = {f"{name.partition('.')[0]}.so": f"INPUT ( AS_NEEDED ( {name} ) )" for name in UNITED}
    scripts |= {
        "libc.so": f"GROUP ( libc.so.6 {compiler.find('libc_nonshared.a')} libsince.a AS_NEEDED ( {in_need} ) )",
        "libm.so": "INPUT ( libm.so.6 )",
        "libstdc++.so": f"INPUT ( libstdc++.so.6 {compiler.find('libstdc++.a')} )",
        "libgcc_s.so": "INPUT ( libgcc_s.so.1 -lgcc )",
    }
    for name, content in scripts.items():
        (folder / name).write_text(content + "\n", encoding="utf-8")


def offences_of(library: Path) -> Iterator[str]:
    """Yield each symbol that a library needs and that a system of the tag may lack."""
    for symbol in symbols_of(library):
        if symbol.is_defined or not symbol.name:
            continue
        if symbol.version.partition("_")[0] in NEWEST and not symbol.is_allowed():
            yield f"{symbol.name} of {symbol.version}"
        elif not symbol.version and not symbol.is_weak and not re.match("_?Py", symbol.name):
            yield f"{symbol.name}, of no version"


def check(wheel: Path) -> int:
    """Print what is wrong with the libraries of a wheel, and return how much."""
    n_offences = 0
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        libraries = sorted(Path(folder).rglob("*.so*"))
        for library in libraries:
            # It finds its symbols, which have no versions, in the Paddle that is loaded.
            if library.name == "libciranda_paddle.so":
                continue
            for offence in offences_of(library):
                print(f"{wheel.name}: {library.relative_to(folder)} needs {offence}")
                n_offences += 1
    print(f"old_glibc: {len(libraries)} libraries of {wheel.name}, {n_offences} offences")
    return n_offences


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(Path(sys.argv[2]).absolute(), Compiler(os.environ.get("CXX") or "c++"))
    elif len(sys.argv) > 2 and sys.argv[1] == "check":
        sys.exit(sum(check(Path(name)) for name in sys.argv[2:]) > 0)
    else:
        sys.exit(__doc__)
