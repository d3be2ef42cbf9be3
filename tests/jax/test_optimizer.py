"""Training with optax on several ranks equals training on one; parameters and objects on every rank."""

from __future__ import annotations

import jax_ranks
import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def test_training_equals_one_process(three: Ranks) -> None:
    three.run(jax_ranks.trainings)


def test_parameters_and_objects(three: Ranks) -> None:
    three.run(jax_ranks.parameters_and_objects)
