"""What links the wheel: the symbols that a library ends up with, and what stands in for functions of later glibcs."""

import ctypes
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "old_glibc.py"
SPEC = importlib.util.spec_from_file_location("old_glibc", TOOL)
old_glibc = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(old_glibc)

# Each function needs something of a later glibc or libstdc++, if it is linked as usual.
LIBRARY = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <charconv>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

extern "C" int own_thread() { return gettid(); }

extern "C" long size_by_stat(const char* path) {
  struct stat seen;
  return stat(path, &seen) ? -1 : seen.st_size;
}

extern "C" long size_by_fstat(int fd) {
  struct stat seen;
  return fstat(fd, &seen) ? -1 : seen.st_size;
}

extern "C" bool is_link(const char* path) {
  struct stat seen;
  return !lstat(path, &seen) && S_ISLNK(seen.st_mode);
}

extern "C" bool is_folder(const char* path) { return std::filesystem::is_directory(path); }

extern "C" double number(const char* text, int n_bytes) {
  double value = 0;
  std::from_chars(text, text + n_bytes, value);
  return value;
}

extern "C" int waited_in_vain() {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::milliseconds(20), [] { return false; });
}

extern "C" int by_another_thread(int value) {
  auto shared = std::make_shared<int>(0);
  std::thread([shared, value] { *shared = value; }).join();
  static std::once_flag once;
  std::call_once(once, [] {});
  return dlsym(RTLD_DEFAULT, "malloc") ? *shared : 0;
}

// By libgcc's table of the processor, of which each library has its own.
#ifdef __x86_64__
extern "C" int has_sse2() { return __builtin_cpu_supports("sse2"); }
#else
extern "C" int has_sse2() { return 1; }
#endif

extern "C" int caught() {
  try {
    throw std::filesystem::filesystem_error("thrown", std::error_code());
  } catch (const std::exception&) {
    return 1;
  }
}
"""

# What stands in for a function of later glibcs, where the process has none.
WAITS = r"""
#include <stdio.h>
#include "since_glibc_2_28.c"

static struct timespec in(long long nanoseconds_from_now) {
  const long long until = now(CLOCK_MONOTONIC) + nanoseconds_from_now;
  return (struct timespec){.tv_sec = until / kNanosecondsOfSecond, .tv_nsec = until % kNanosecondsOfSecond};
}

int main() {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < 3; ++i) {
    const struct timespec deadline = in((i - 1) * 30000000LL);
    const int status = wait_by_clock_of_day(&condition, &mutex, CLOCK_MONOTONIC, &deadline);
    printf("%d %d\n", status == ETIMEDOUT, now(CLOCK_MONOTONIC) >= nanoseconds(&deadline));
  }
  const struct timespec deadline = in(3000000000LL);
  printf("%d\n", wait_by_clock_of_day(&condition, &mutex, CLOCK_MONOTONIC, &deadline));
  return now(CLOCK_MONOTONIC) >= nanoseconds(&deadline);
}
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    subprocess.run([sys.executable, TOOL, "make", folder], check=True, timeout=120)
    return folder


def compiled(folder: Path, *flags: object) -> Path:
    source, library = folder / "library.cc", folder / "library.so"
    source.write_text(LIBRARY, encoding="utf-8")
    subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", source, "-o", library, *flags], check=True, timeout=120)
    return library


def checked(library: Path) -> subprocess.CompletedProcess[str]:
    wheel = library.with_suffix(".whl")
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, f"package/{library.name}")
    command = [sys.executable, TOOL, "check", wheel]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_a_library_that_is_linked_against_stubs_needs_no_later_symbol_and_runs(tmp_path: Path, stubs: Path) -> None:
    path = compiled(tmp_path, "-L", stubs, "-Wl,--no-undefined")
    done = checked(path)
    assert (done.returncode, done.stdout) == (0, "old_glibc: 1 libraries of library.whl, 0 offences\n")
    assert not [symbol for symbol in old_glibc.symbols_of(path) if "__cpu_" in symbol.name]
    library = ctypes.CDLL(str(path))
    library.number.restype = ctypes.c_double
    (tmp_path / "link").symlink_to(path)
    with path.open("rb") as file:
        assert library.size_by_fstat(file.fileno()) == path.stat().st_size
    assert library.size_by_stat(str(path).encode()) == path.stat().st_size
    assert library.size_by_stat(b"/none") == -1
    assert library.is_link(str(tmp_path / "link").encode()) & 1
    assert library.is_folder(str(tmp_path).encode()) & 1
    assert library.number(b"2.5", 3) == 2.5
    assert library.waited_in_vain() == 0
    assert library.by_another_thread(7) == 7
    assert library.caught() == 1
    assert library.has_sse2()
    assert library.own_thread() > 0


def test_a_library_that_is_linked_as_usual_is_refused(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    if all(symbol.is_allowed() for symbol in old_glibc.symbols_of(path) if symbol.version):
        pytest.skip("this machine's libraries are as old as the oldest")
    done = checked(path)
    assert done.returncode == 1
    assert "library.whl: package/library.so needs " in done.stdout


def test_a_symbol_of_no_version_is_refused(tmp_path: Path, stubs: Path) -> None:
    """As the linker lets it pass in a module, which may use what only the interpreter has."""
    source = tmp_path / "module.c"
    source.write_text("int later(void); int PyThing(void); int f(void) { return later() + PyThing(); }\n")
    library = tmp_path / "module.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library, "-L", stubs], check=True, timeout=200)
    done = checked(library)
    assert done.returncode == 1
    assert "module.so needs later, of no version" in done.stdout
    assert "PyThing" not in done.stdout


def test_without_waits_by_other_clocks_a_wait_ends_at_its_time_or_within_a_second(tmp_path: Path) -> None:
    source, program = tmp_path / "waits.c", tmp_path / "waits"
    source.write_text(WAITS, encoding="utf-8")
    flags = [*old_glibc.STATIC_LIBRARY_FLAGS, "-I", TOOL.parent, "-pthread"]
    subprocess.run(["cc", *flags, source, "-o", program], check=True, timeout=200)
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["1 1", "1 1", "1 1", "0"])
