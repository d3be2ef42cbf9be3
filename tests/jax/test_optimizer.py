"""Training with optax on several ranks equals training on one; parameters and objects on every rank."""

from __future__ import annotations

import jax_training
import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def test_training_equals_one_process(three_or_four: Ranks) -> None:
    three_or_four.run(jax_training.trainings)


def test_one_rank_ends_before(three: Ranks) -> None:
    three.run(jax_training.one_rank_ends_before)


@pytest.mark.slow
def test_training_with_each_option(three: Ranks) -> None:
    three.run(jax_training.trainings_with_each_option)


@pytest.mark.slow
def test_line_searches_see_all_ranks(three: Ranks) -> None:
    three.run(jax_training.line_searches, timeout=100)


def test_parameters_and_objects(three: Ranks) -> None:
    three.run(jax_training.parameters_and_objects)
