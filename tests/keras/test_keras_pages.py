"""The examples of the guide's page about Keras, and the script in examples/keras, run on the backend that is chosen."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from ranks import Ranks

from test_docs import examples

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.multiprocess

EXAMPLES = [one for one in examples() if one.page == "docs/guide/keras.md"]


def said_by(path: str) -> str:
    """Run a script, as its own module, and return what it prints; it must end well."""
    import runpy

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            assert not end.code, (end.code, said.getvalue())  # noqa: PT017
    return said.getvalue()


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_example_of_the_page(two: Ranks, example: object, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example.code, encoding="utf-8")  # type: ignore[attr-defined]
    two.run(said_by, str(script))


def test_digits_equal_one_process(two: Ranks) -> None:
    said = two.run(said_by, str(ROOT / "examples" / "keras" / "digits.py"))
    assert "on 2 processes" in said[0]
    assert "same as one process" in said[0]
