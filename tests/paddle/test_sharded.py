"""ShardedLinear and its loss on n ranks are a dense layer and the softmax cross entropy in one process."""

from __future__ import annotations

import pytest
import sharded_ranks
from ranks import Ranks
from test_operators import FORMS, IS_OLD

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("form", FORMS)
def test_like_a_dense_layer(two: Ranks, form: str) -> None:
    two.run(sharded_ranks.all_cases, form, timeout=60)
    two.run(sharded_ranks.told_to_all, form)


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [3, 4])
def test_like_a_dense_layer_on_more_ranks(environment: dict[str, str], n_ranks: int) -> None:
    with Ranks(n_ranks, env=environment) as ranks:
        for form in FORMS:
            ranks.run(sharded_ranks.all_cases, form)
        ranks.run(sharded_ranks.trained_in_dygraph)
        ranks.run(sharded_ranks.trained_in_program, IS_OLD[0], False)


def test_training_beside_data_parallel_parameters(two: Ranks) -> None:
    two.run(sharded_ranks.trained_in_dygraph)
    for is_old in IS_OLD:
        two.run(sharded_ranks.trained_in_program, is_old, False)
    two.run(sharded_ranks.trained_in_program, IS_OLD[0], True)


def test_layers_of_their_own(two: Ranks) -> None:
    two.run(sharded_ranks.layers_of_their_own)
    two.run(sharded_ranks.refused)
    for is_old in IS_OLD:
        two.run(sharded_ranks.written_for_others, is_old)
