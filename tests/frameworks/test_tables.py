"""A framework's table of element types that lacks one, or has one out of its order, does not compile."""

from __future__ import annotations

import subprocess

import pytest

import ciranda
from ciranda import _core

ROWS = [f"{{{number}, {number}}}" for number in sorted(_core.DATA_TYPES.values())]
SWAPPED = [ROWS[1], ROWS[0], *ROWS[2:]]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [(ROWS, ""), (ROWS[:-1], "one row for each"), ([*ROWS, ROWS[-1]], "one row for each"), (SWAPPED, "rows stand in")],
    ids=["whole", "short", "long", "swapped"],
)
def test_a_table_has_every_row_in_its_place(rows: list[str], complaint: str) -> None:
    program = (
        "#include <ciranda/native/tables.hpp>\n"
        f"constexpr ciranda::native::DtypeTable<int> kDtypes({{{', '.join(rows)}}});\n"
    )
    command = ["c++", "-std=c++20", "-x", "c++", "-fsyntax-only", "-I", ciranda.get_include(), "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not complaint), done.stderr
    assert complaint in done.stderr
