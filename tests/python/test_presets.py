"""What CMakePresets.json leaves out exists: a pattern that matches nothing since a rename lets everything run again."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _tests() -> Iterator[str]:
    """Yield the C++ tests as GoogleTest's filters know them, those with parameters with a `*` for each."""
    text = "\n".join(source.read_text(encoding="utf-8") for source in (ROOT / "tests" / "cpp").rglob("*.cc"))
    yield from (f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F)?\((\w+),\s*(\w+)\)", text, re.M))
    names = re.findall(r"^TEST_P\((\w+),\s*(\w+)\)", text, re.M)
    for prefix, suite in re.findall(r"^INSTANTIATE_TEST_SUITE_P\(\s*(\w+),\s*(\w+)", text, re.M):
        yield from (f"{prefix}/{suite}.{name}/*" for of, name in names if of == suite)


def test_what_presets_leave_out_exists() -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    patterns = {
        pattern
        for preset in presets
        for pattern in preset.get("cacheVariables", {}).get("CIRANDA_TESTS_LEFT_OUT", "").split(":")
        if pattern
    }
    assert len(patterns) > 5
    tests = list(_tests())
    # By parameter: of a test that has such ones.
    without_parameters = {re.sub(r"/[^/.]+$", "/*", pattern) for pattern in patterns}
    assert [each for each in without_parameters if not any(fnmatchcase(test, each) for test in tests)] == []
