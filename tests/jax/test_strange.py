"""What users rarely do: each gives the right result, or says why it cannot."""

from __future__ import annotations

import jax_strange
import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize(
    "name",
    [
        "arrays_in_columns",
        "known_while_tracing",
        "donated_arrays_are_gone",
        "threads_in_different_orders",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("arrays_without_elements", "loops_and_branches", "derivatives")
        ),
    ],
)
def test_it_is_right_or_refused(three: Ranks, name: str) -> None:
    three.run(getattr(jax_strange, name), timeout=60)
