"""Training that begins again from its last commit ends like training that never failed."""

from __future__ import annotations

from pathlib import Path

import elastic_jobs
import jax_elastic
import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize(
    "failures", [pytest.param({3: "leave"}, marks=pytest.mark.slow), {2: "raise", 5: "hosts", 7: "leave"}]
)
def test_it_ends_as_if_nothing_had_failed(three: Ranks, failures: dict[int, str]) -> None:
    wanted = three.run(jax_elastic.train, {}, 0, timeout=60)
    assert len(set(map(str, wanted))) == 1
    found = three.run(jax_elastic.train, failures, 0, timeout=60)
    for outcome in found:
        assert outcome.weights == wanted[0].weights
        assert outcome.losses == wanted[0].losses
        assert outcome.key == wanted[0].key
        assert outcome.epoch == wanted[0].epoch == 4
        assert outcome.n_calls == 1 + len(failures)
        assert outcome.n_resets == len(failures)
    assert found[0].n_steps > 0


def test_what_ranks_have_of_their_own(three: Ranks) -> None:
    three.run(jax_elastic.other_structures)
    three.run(jax_elastic.functions_stay)
    three.run(jax_elastic.nothing_is_half_saved)


def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    elastic_jobs.check(Path(__file__).with_name("elastic_script.py"), tmp_path)
