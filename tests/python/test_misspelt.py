"""Names in the environment that look like settings."""

from __future__ import annotations

import pytest

from ciranda import _core
from ciranda._misspelt import BINDINGS_OWN, INTERNAL, misspelt, unknown

SETTINGS = [row["name"] for row in _core.settings()]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("FUSION_TRESHOLD", "FUSION_THRESHOLD"),
        ("NUM_LANE", "NUM_LANES"),
        ("LOGLEVEL", "LOG_LEVEL"),
        ("WIRE_DYTPE", "WIRE_DTYPE"),
        ("STALL_WARNING", "STALL_WARNING_SECONDS"),
        ("START_TIMEOUT_SECONDS", "START_TIMEOUT"),
        ("SECRET", "SECRET_FILE"),
    ],
)
def test_what_is_meant_is_found(name: str, meant: str) -> None:
    assert unknown([f"CIRANDA_{name}"], SETTINGS) == {f"CIRANDA_{name}": f"CIRANDA_{meant}"}
    assert f"is CIRANDA_{meant} meant?" in misspelt([f"CIRANDA_{name}"], SETTINGS)[f"CIRANDA_{name}"]


@pytest.mark.parametrize("name", ["TEST_TAG", "HOME", "ROOT", "1", "", "VERSION", "DEBUG"])
def test_what_is_like_no_setting_is_not_misspelt(name: str) -> None:
    assert unknown([f"CIRANDA_{name}"], SETTINGS) == {f"CIRANDA_{name}": None}
    assert misspelt([f"CIRANDA_{name}"], SETTINGS) == {}


def test_settings_and_names_of_others_are_no_question() -> None:
    assert unknown([*SETTINGS, *BINDINGS_OWN, *INTERNAL, "HOROVOD_RNAK", "PATH"], SETTINGS) == {}
