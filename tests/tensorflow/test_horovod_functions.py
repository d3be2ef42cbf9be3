"""`horovod.tensorflow` as its users know it, on two to four ranks."""

from __future__ import annotations

import horovod_work
import pytest
from ranks import Ranks

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_functions_of_horovod(environment: dict[str, str], n_ranks: int) -> None:
    with Ranks(n_ranks, env=environment) as ranks:
        for work in (
            horovod_work.reductions,
            horovod_work.moves,
            horovod_work.arguments_by_position,
            horovod_work.differing_calls,
            horovod_work.uneven_work,
            horovod_work.another_world,
        ):
            ranks.run(work, timeout=300)
