"""Training with Flax, as its users write it, equals training in one process."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

pytest.importorskip("flax")


@pytest.mark.parametrize("name", ["linen", "modules", "rematerialized_layers"])
def test_training_equals_one_process(three: Ranks, name: str) -> None:
    import jax_flax

    three.run(getattr(jax_flax, name), timeout=200)
