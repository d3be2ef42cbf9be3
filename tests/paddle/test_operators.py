"""The operators, in dygraph and in programs: results, gradients, names, and how they fail."""

from __future__ import annotations

import operator_ranks
import pytest
from ranks import Ranks
from writing import HAS_OLD, HAS_PIR

pytestmark = pytest.mark.multiprocess

FORMS = ["dygraph", *(["program"] if HAS_PIR else []), *(["old"] if HAS_OLD else [])]
IS_OLD = [*([False] if HAS_PIR else []), *([True] if HAS_OLD else [])]


@pytest.mark.parametrize("form", FORMS)
def test_results_and_gradients(two: Ranks, form: str) -> None:
    two.run(operator_ranks.results_and_gradients, form)


@pytest.mark.parametrize("is_old", IS_OLD)
def test_programs(two: Ranks, is_old: bool) -> None:
    two.run(operator_ranks.element_types, is_old)
    two.run(operator_ranks.in_two_halves, is_old, timeout=60)
    two.run(operator_ranks.in_two_halves_by_one_thread, is_old, timeout=60)
    two.run(operator_ranks.rings_in_other_orders, is_old)
    two.run(operator_ranks.bad_input, is_old)
    two.run(operator_ranks.worlds_that_follow, is_old)


@pytest.mark.slow
@pytest.mark.parametrize("is_old", IS_OLD)
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_a_thousand_runs(environment: dict[str, str], n_ranks: int, is_old: bool) -> None:
    with Ranks(n_ranks, env=environment) as ranks:
        ranks.run(operator_ranks.many_in_any_order, is_old, 1000 if n_ranks == 2 else 100, timeout=300)
        ranks.run(operator_ranks.rings_in_other_orders, is_old, 100, timeout=100)


def test_two_halves_in_dygraph(two: Ranks) -> None:
    two.run(operator_ranks.in_two_halves_in_dygraph)


def test_gradients_as_horovods(two: Ranks) -> None:
    two.run(operator_ranks.gradients_as_horovods)


def test_a_rank_that_is_killed_between_start_and_sync(environment: dict[str, str]) -> None:
    with Ranks(3, env=environment) as ranks:
        ranks.start(2, operator_ranks.waits_for, 2, IS_OLD[0])
        outcomes = ranks.outcomes(operator_ranks.waits_for, 2, IS_OLD[0], on=[0, 1])
        ranks.is_broken = True
    for outcome in outcomes:
        assert outcome.error is None, outcome.traceback
        texts = outcome.value
        assert all("ciranda.paddle" in text for text in texts), texts
        assert "rank 2" in texts[0], texts
