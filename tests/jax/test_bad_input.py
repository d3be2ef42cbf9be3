"""Wrong calls, inside jit and outside."""

from __future__ import annotations

import jax_bad_input
import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize(
    "name",
    [
        "wrong_calls",
        "wrong_splits",
        "lists_that_differ",
        pytest.param("ranks_that_differ", marks=pytest.mark.slow),
        "outside_a_world",
        "removed_set",
    ],
)
def test_it_is_refused(three: Ranks, name: str) -> None:
    three.run(getattr(jax_bad_input, name), timeout=60)
