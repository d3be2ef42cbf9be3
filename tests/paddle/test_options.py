"""What programs have besides gradients and parameters works, or is refused with the way out."""

from __future__ import annotations

import option_ranks
import pytest
from ranks import Ranks
from test_operators import IS_OLD

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("is_old", IS_OLD)
def test_local_sgd(two: Ranks, is_old: bool) -> None:
    two.run(option_ranks.averaged_state, is_old)
    two.run(option_ranks.adaptive_interval, is_old, True)


@pytest.mark.parametrize("is_old", IS_OLD)
def test_other_optimizers(two: Ranks, is_old: bool) -> None:
    two.run(option_ranks.scaled_losses, is_old)
    two.run(option_ranks.scaled_with_own, is_old)
    two.run(option_ranks.recomputed, is_old)
    two.run(option_ranks.accumulated, is_old)
    two.run(option_ranks.sparse_gradients, is_old)
    two.run(option_ranks.lazy_optimizers, is_old)
    two.run(option_ranks.norms_that_would_differ, is_old)


@pytest.mark.slow
@pytest.mark.parametrize("is_old", IS_OLD)
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_options_pairwise(environment: dict[str, str], n_ranks: int, is_old: bool) -> None:
    with Ranks(n_ranks, env=environment) as ranks:
        ranks.run(option_ranks.matrix, is_old, timeout=300)
