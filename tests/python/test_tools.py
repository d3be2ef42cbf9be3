"""The checks of tools/ are only worth something if they catch what they are for: break each rule and see."""

import importlib.util
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_MAKE_CUBINS = importlib.util.spec_from_file_location("make_cubins", ROOT / "tools" / "make_cubins.py")
make_cubins = importlib.util.module_from_spec(_MAKE_CUBINS)
_MAKE_CUBINS.loader.exec_module(make_cubins)


def run_tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def write(root: Path, path: str, text: str) -> None:
    file = root / "cpp" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "include", "complaint"),
    [
        ("base/a.hpp", "call/request.hpp", "base may not use call (it may use ciranda)"),
        ("kernels/a.cc", "transport/mesh.hpp", "kernels may not use transport (it may use base)"),
        ("agree/a.hpp", "transport/mesh.hpp", "agree may not use transport (it may use base, call)"),
        ("bindings/python/a.cc", "collective/ring.hpp", "bindings may not use collective"),
        ("include/ciranda/a.hpp", "base/status.hpp", "ciranda may not use base"),
        ("fuse/a.cc", "plan.hpp", "write the path from cpp/"),
        ("surprise/a.cc", "base/status.hpp", "surprise/ is not in the table"),
        ("backend/cuda/kernels/a.inc", "kernels/half.hpp", "backend/cuda/kernels may use base alone"),
    ],
)
def test_a_forbidden_include_is_named(tmp_path: Path, path: str, include: str, complaint: str) -> None:
    write(tmp_path, path, f'// What it is.\n#include <vector>\n#include "{include}"\n')
    done = run_tool("check_layers.py", tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path / 'cpp' / path}:3: " in done.stdout
    assert complaint in done.stdout


def test_a_forbidden_link_is_named(tmp_path: Path) -> None:
    write(tmp_path, "fuse/CMakeLists.txt", "# fuse\nciranda_layer(fuse\n  DEPS base transport A::b\n  SOURCES a.cc)\n")
    done = run_tool("check_layers.py", tmp_path)
    assert done.returncode == 1
    assert "CMakeLists.txt:2: DEPS transport: fuse may not use transport" in done.stdout
    assert "1 offences" in done.stdout


def test_a_private_header_is_named(tmp_path: Path) -> None:
    write(tmp_path, "backend/a.cc", '#include "backend/native.hpp"\n')
    write(tmp_path, "engine/a.cc", '#include "backend/registry.hpp"\n#include "backend/native.hpp"\n')
    done = run_tool("check_layers.py", tmp_path)
    assert done.returncode == 1
    assert 'engine/a.cc:2: #include "backend/native.hpp": backend shows engine only backend.hpp, ' in done.stdout
    assert "1 offences" in done.stdout


def test_a_circle_of_includes_within_a_folder_is_named(tmp_path: Path) -> None:
    write(tmp_path, "agree/a.hpp", '// What it is.\n#include "agree/b.hpp"\n')
    write(tmp_path, "agree/a.cc", '#include "agree/a.hpp"\n#include "agree/c.hpp"\n')
    write(tmp_path, "agree/b.cc", '#include "agree/b.hpp"\n#include "agree/c.hpp"\n')
    write(tmp_path, "include/ciranda/one.h", '#include "ciranda/two.h"\n')
    done = run_tool("check_layers.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "check_layers: 0 offences\n")
    write(tmp_path, "agree/c.cc", '#include "agree/c.hpp"\n#include "agree/a.hpp"\n')
    write(tmp_path, "include/ciranda/two.h", '#include "ciranda/one.h"\n')
    done = run_tool("check_layers.py", tmp_path)
    assert done.returncode == 1
    circles = [line.partition(" a circle: ")[2] for line in done.stdout.splitlines()[:-1]]
    assert len(circles) == 2
    for concept, circle in (("agree/a", circles[0]), ("agree/c", circles[0]), ("ciranda/one", circles[1])):
        assert f"{concept} includes " in circle
        assert circle.split(" includes ")[0] == circle.split(" includes ")[-1]


@pytest.mark.parametrize(
    ("opening", "complaint"),
    [
        ("Called by Loop, run() and b.cc.", None),
        ("Called by engine/, as its loop runs. Called by Nobody.", None),
        ("Used by Loop; types used by *.cc; any thread.", None),
        ("Called by engine/, and through Loop by Watch.", None),
        ("Called by engine/ (Watch::look).", None),
        ("What it is.", 'it does not say who calls it: "Called by ..."'),
        ("Called by Loop.", "engine/b.cc includes it, but is not named"),
        ("Called by b.cc and engine/lost.cc.", "there is no engine/lost.cc"),
        ("Called by engine/ and Lost.", "there is no Lost"),
        ("Called by engine/, through LostLoop.", "there is no LostLoop"),
        ("Called by engine/ and Watch.", "Watch does not include it"),
        ("Called by engine/ and execute/.", "execute/ does not include it"),
        ("Used by all layers.", "fewer than 8 layers include it: name them"),
    ],
)
def test_a_wrong_sentence_of_callers_is_named(tmp_path: Path, opening: str, complaint: str | None) -> None:
    write(tmp_path, "base/a.hpp", f"// A.\n//\n// {opening}\n#pragma once\n")
    write(tmp_path, "engine/loop.hpp", "// Called by run().\nclass Loop {\n};\n")
    write(tmp_path, "engine/loop.cc", '#include "engine/loop.hpp"\n#include "base/a.hpp"\n')
    write(tmp_path, "engine/b.cc", '#include "base/a.hpp"\n#include "engine/loop.hpp"\nvoid run() {\n}\n')
    write(tmp_path, "execute/watch.hpp", "// Called by tests.\nclass Watch {\n};\n")
    done = run_tool("check_callers.py", tmp_path)
    if complaint is None:
        assert (done.returncode, done.stdout) == (0, "check_callers: 3 headers, 0 offences\n")
    else:
        assert f"{tmp_path / 'cpp' / 'base' / 'a.hpp'}:1: {complaint}\n" in done.stdout
        assert done.returncode == 1


def test_the_sentences_of_callers_are_right() -> None:
    done = run_tool("check_callers.py")
    assert done.returncode == 0, done.stdout


def test_a_file_more_than_claimed_is_counted_and_a_switch_named(tmp_path: Path) -> None:
    claims = {"a collective": 1, "an algorithm": 1, "an element type": 0, "a transport": 1, "a device": 2}
    claims |= {"a collective in the package": 1}
    rows = "".join(f"| {change} | {number}, as some |\n" for change, number in claims.items())
    (tmp_path / "CONTRIBUTING.md").write_text(f"{rows}| a channel of jobs | 0 |\n", encoding="utf-8")
    write(tmp_path, "call/a.hpp", "kScan = 14,\n")
    write(tmp_path, "backend/a.cc", "kDirectDoubling  // as the Loopback, unlike RecordChannel\n")
    write(tmp_path, "bindings/python/a.cc", "kScan, kInt16\n")
    write(tmp_path, "../tests/cpp/transport/a.hpp", "class LoopbackFabric {};\n")
    write(tmp_path, "../tests/cpp/engine/a.hpp", "LoopbackFabric fabric; PagedDevice device;\n")
    write(tmp_path, "../tests/cpp/engine/homes.hpp", "enum class Homes { kHost, kPaged };\n")
    write(tmp_path, "../tests/cpp/engine/a_test.cc", "paged_home(0);\n")
    package = tmp_path / "src" / "ciranda"
    package.mkdir(parents=True)
    (package / "scans.py").write_text("def scan_async(): ...\n", encoding="utf-8")
    (package / "ops.pyi").write_text("# Written by tools/x.py\nscan_async = 1\n", encoding="utf-8")
    assert run_tool("check_touched.py", tmp_path).returncode == 0
    (package / "torch.py").write_text('__all__ = ["scan"]\n', encoding="utf-8")
    write(tmp_path, "engine/a.cc", "switch (collective) {\n  case Collective::kScan: return scan_work();\n}\n")
    write(tmp_path, "engine/b.cc", "if (dynamic_cast<LoopbackMesh*>(&mesh)) return PagedDevice::kType;\n")
    write(tmp_path, "execute/a.cc", "switch (type) {\n  case DeviceType::kHost: return copy();\n}\n")
    done = run_tool("check_touched.py", tmp_path)
    assert done.returncode == 1
    assert "CONTRIBUTING.md says 1 of a collective, but it is 2" in done.stdout
    assert "CONTRIBUTING.md says 1 of a transport, but it is 2" in done.stdout
    assert "CONTRIBUTING.md says 2 of a device, but it is 3" in done.stdout
    assert "cpp/engine/a.cc:2: case Collective::kScan" in done.stdout
    assert "cpp/execute/a.cc:2: case DeviceType::kHost" in done.stdout
    assert "CONTRIBUTING.md says 1 of a collective in the package, but it is 2" in done.stdout
    assert "6 offences" in done.stdout


def test_allowed_arrows_pass(tmp_path: Path) -> None:
    write(
        tmp_path, "collective/a.hpp", '#include "collective/b.hpp"\n#include "kernels/k.hpp"\n#include "base/c.hpp"\n'
    )
    write(tmp_path, "collective/CMakeLists.txt", "ciranda_layer(collective DEPS transport SOURCES ${sources})\n")
    write(tmp_path, "capi/a.cc", '#include "ciranda/ciranda.h"\n#include "engine/engine.hpp"\n')
    done = run_tool("check_layers.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "check_layers: 0 offences\n")


def test_the_repository_keeps_its_arrows() -> None:
    done = run_tool("check_layers.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("// Uses what it does not include.\n#pragma once\nstd::string name();\n", "std"),
        ("// Compiles with a warning.\n#pragma once\ninline int f(long v) { return v; }\n", "conversion"),
        ("// May be read twice.\n", "#pragma once is missing"),
        ("#pragma once\n", "a header opens with a comment"),
    ],
)
def test_a_bad_header_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, "base/bad.hpp", text)
    write(tmp_path, "base/good.hpp", "// Good.\n#pragma once\n#include <string>\nstd::string name();\n")
    done = run_tool("check_headers.py", tmp_path)
    assert done.returncode == 1
    assert "bad.hpp" in done.stdout
    assert complaint in done.stdout
    assert "2 headers, 1 bad" in done.stdout


def test_a_header_that_a_source_includes_first_is_left_to_the_build(tmp_path: Path) -> None:
    (tmp_path / "cpp").mkdir()
    (tmp_path / "cpp" / "one.hpp").write_text("// Says what it is.\n#pragma once\nUnknown x();\n")
    (tmp_path / "cpp" / "one.cc").write_text('#include "one.hpp"\n\n#include <vector>\n')
    assert run_tool("check_headers.py", tmp_path).returncode == 0
    (tmp_path / "cpp" / "one.cc").write_text('#include <vector>\n\n#include "one.hpp"\n')
    assert run_tool("check_headers.py", tmp_path).returncode == 1


def test_a_c_header_must_be_c(tmp_path: Path) -> None:
    write(tmp_path, "include/ciranda/bad.h", "/* Only C++ knows this. */\n#pragma once\nstruct A { int f() const; };\n")
    done = run_tool("check_headers.py", tmp_path)
    assert done.returncode == 1
    assert "bad.h" in done.stdout


GUARDED = """// What it is.
#include "base/thread_annotations.hpp"
#include "progress/progress_lock.hpp"
namespace ciranda {
struct Counted {
  void add() REQUIRES(progress_lock) { ++n; }
  int n GUARDED_BY(progress_lock) = 0;
};
template <typename Run>
void with_lock(ProgressLock& lock, Run run) {
  if (!lock.try_take()) return;
  run();
  lock.give_back();
}
inline void well(ProgressLock& lock, Counted& counted) {
  with_lock(lock, [&]() REQUIRES(progress_lock) { counted.add(); });
}
"""
UNGUARDED = """
inline void reads(Counted& counted) { counted.n = 1; }
inline void calls(Counted& counted) { counted.add(); }
inline void keeps(ProgressLock& lock) { lock.take(); }
inline void tries(ProgressLock& lock, Counted& counted) { lock.try_take(); counted.add(); }
inline void passes(ProgressLock& lock, Counted& counted) { with_lock(lock, [&] { counted.add(); }); }
"""


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    for header in ("base/thread_annotations.hpp", "progress/progress_lock.hpp"):
        write(tmp_path, header, (ROOT / "cpp" / header).read_text(encoding="utf-8"))
    write(tmp_path, "engine/a.cc", GUARDED + "}\n")
    done = run_tool("check_threads.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "check_threads: 1 sources, 0 batches bad\n")
    write(tmp_path, "engine/a.cc", GUARDED + UNGUARDED + "}\n")
    done = run_tool("check_threads.py", tmp_path)
    assert done.returncode == 1
    first = GUARDED.count("\n") + 2
    for line in range(first, first + UNGUARDED.count("\n") - 1):
        assert f"{tmp_path / 'cpp' / 'engine' / 'a.cc'}:{line}:" in done.stdout
    assert "requires holding progress lock 'progress_lock' exclusively" in done.stdout


def test_a_world_of_imports_is_told(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("try:\n    from package import b\nexcept ImportError:\n    b = None\n")
    only_for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import package.a\n"
    (package / "b.py").write_text(only_for_types)
    assert run_tool("check_imports.py", tmp_path).returncode == 0
    (package / "b.py").write_text(only_for_types + "def f():\n    import package.a  # late\n")
    assert "package.b imports package.a" in run_tool("check_imports.py", tmp_path).stdout
    (package / "b.py").write_text("class B:\n    import package.c\n")
    (package / "c.py").write_text("from package.a import b\n")
    done = run_tool("check_imports.py", tmp_path)
    assert done.returncode == 1
    for name in "abc":
        assert f"package.{name} imports package." in done.stdout


LONG = "word " * 24 + "word"  # 124 characters


@pytest.mark.parametrize(
    ("text", "is_offence"),
    [
        (LONG, True),
        (f"- {LONG}", True),
        (f"> {LONG}", True),
        (f"1. the command `{LONG}`", True),
        (f"[a link](https://example.org/{'x' * 100}), then more", True),
        (f"```\ncode\n```\n{LONG}", True),
        (LONG[:120], False),
        (f"```bash\n{LONG}\n```", False),
        (f"~~~~\n~~~\n{LONG}\n~~~~", False),
        (f"| {LONG} |", False),
        (f"## {LONG}", False),
        (f"<!-- not run: {LONG} -->", False),
        (f"- [{LONG}](page.md)", False),
        (f"![{LONG}](picture.png)", False),
        (f"  `{LONG}`", False),
    ],
)
def test_a_long_line_of_prose_is_named(tmp_path: Path, text: str, *, is_offence: bool) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{text}\n", encoding="utf-8")
    done = run_tool("check_prose.py", tmp_path)
    assert done.returncode == is_offence, done.stdout
    line = 3 + text.count("\n")
    assert (f"{page}:{line}: " in done.stdout) == is_offence
    assert f"check_prose: {int(is_offence)} offences" in done.stdout


def test_prose_that_git_ignores_is_not_read(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    for folder in ("build", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text(LONG)
    done = run_tool("check_prose.py", tmp_path)
    assert f"{tmp_path / 'docs' / 'page.md'}:1: 124 characters" in done.stdout
    assert "check_prose: 1 offences" in done.stdout


def test_a_late_import_without_a_reason_is_named(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("import os\n")
    (package / "b.py").write_text("def f():\n    import json\n    from package import a  # which takes long\n")
    assert run_tool("check_imports.py", tmp_path).returncode == 0
    (package / "b.py").write_text("class B:\n    def f(self):\n        if self:\n            import package.a\n")
    done = run_tool("check_imports.py", tmp_path)
    assert done.returncode == 1
    assert f"{package / 'b.py'}:4: package.a is imported inside of a function: a comment must say why" in done.stdout


def test_a_stub_that_lacks_a_collective_is_named(tmp_path: Path) -> None:
    assert run_tool("make_stubs.py", tmp_path).returncode == 0
    assert run_tool("make_stubs.py", "--check", tmp_path).returncode == 0
    stub = tmp_path / "torch" / "ops.pyi"
    stub.write_text(stub.read_text(encoding="utf-8").replace("scan = collectives.scan\n", ""), encoding="utf-8")
    done = run_tool("make_stubs.py", "--check", tmp_path)
    assert done.returncode == 1
    assert f"{stub} is not up to date" in done.stdout


def test_what_the_tests_start_hears_of_hang_ups_and_ctrl_c_under_nohup() -> None:
    """As the launcher's tests need: who starts pytest may have it ignore both, and children inherit that."""
    shown = "from signal import *; print(*(getsignal(number) is SIG_IGN for number in (SIGHUP, SIGINT)))"
    program = f"import conftest, subprocess, sys; subprocess.run([sys.executable, '-c', {shown!r}], check=True)"
    command = ["sh", "-c", 'trap "" HUP INT; exec "$0" -c "$1"', sys.executable, program]
    done = subprocess.run(
        command, cwd=ROOT / "tests" / "multiprocess", capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize(
    ("instruction", "is_found"),
    [
        ("fma.rn.f32", True),
        ("fma.rn.ftz.f64", True),
        ("mad.rn.f32", True),
        ("mul.f32", True),
        ("add.ftz.f32", True),
        ("mul.rn.f32", False),
        ("div.rn.f64", False),
        ("mad.lo.s32", False),
        ("add.s64", False),
    ],
)
def test_instructions_that_may_contract_are_found(instruction: str, is_found: bool) -> None:
    ptx = f".version 8.8\n\tsetp.eq.s32 %p1, %r1, 0;\n\t{instruction} \t%f3, %f1, %f2;\n"
    assert make_cubins.contracted(ptx) == ([instruction] if is_found else [])


def test_images_are_packed_at_multiples_of_16_bytes() -> None:
    images = [(70, False, b"first"), (100, True, b"second")]
    packed = make_cubins.packed(images)
    rows = list(struct.iter_unpack("<IIQQ", packed[:72]))
    assert [(row[0], bool(row[1]), packed[row[2] : row[2] + row[3]]) for row in rows[:2]] == images
    assert rows[2] == (0, 0, 0, 0)
    assert all(row[2] % 16 == 0 for row in rows)


def test_without_nvrtc_the_check_of_the_ptx_says_that_it_is_skipped(tmp_path: Path) -> None:
    done = run_tool("make_cubins.py", "--check", "--nvrtc", tmp_path / "none")
    assert done.returncode == 77
    assert done.stdout.startswith("SKIPPED: no NVRTC 12 is found")
    assert run_tool("make_cubins.py", tmp_path / "images", "--nvrtc", tmp_path / "none").returncode == 1
