"""Programs that are rewritten, and optimizers that are wrapped, train as one process does on all ranks' batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import training_ranks
from ranks import Ranks
from test_operators import IS_OLD

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("is_old", IS_OLD)
def test_gradients_transpiled(two: Ranks, is_old: bool) -> None:
    for kind, nrings, bucket_mb in (("sgd", 1, 4), ("momentum", 2, 0), ("adam", 4, 1e-4), ("clipping", 2, 1e-4)):
        two.run(training_ranks.gradients_transpiled, kind, is_old, nrings, bucket_mb)
    two.run(training_ranks.gradients_transpiled, "regularized", is_old, 2, 0)


@pytest.mark.parametrize("is_old", IS_OLD)
def test_wrapped(two: Ranks, is_old: bool) -> None:
    two.run(training_ranks.wrapped, "clipping", is_old, {"nrings": 2, "bucket_mb": 0})
    two.run(training_ranks.wrapped, "regularized", is_old, {"nrings": 1, "gradient_predivide_factor": 3.0})
    two.run(_with_compression, is_old)


def _with_compression(is_old: bool) -> None:
    import ciranda.paddle as hvd

    training_ranks.wrapped("momentum", is_old, {"compression": hvd.Compression.fp16}, 2e-2)
    training_ranks.in_dygraph("momentum", {"compression": hvd.Compression.bf16}, 1e-1)


@pytest.mark.parametrize("is_old", IS_OLD)
def test_parameters_averaged(two: Ranks, is_old: bool) -> None:
    for k_steps in (1, 3):
        two.run(training_ranks.averaged_parameters, is_old, k_steps)
    two.run(training_ranks.averaged_parameters, is_old, 3, True)
    two.run(training_ranks.averaged_differences, is_old)


@pytest.mark.parametrize("is_old", IS_OLD)
def test_what_else_a_program_has(two: Ranks, is_old: bool, tmp_path: Path) -> None:
    two.run(training_ranks.startup_of_rank_0, is_old)
    two.run(training_ranks.distributed_parameter, is_old)
    two.run(training_ranks.programs_that_are_wrong, is_old)
    two.run(training_ranks.without_collectives_for_inference, is_old, str(tmp_path))
    two.run(training_ranks.many_runs, is_old, 100)


def test_dygraph(two: Ranks) -> None:
    two.run(training_ranks.in_dygraph, "adam", {"nrings": 2, "bucket_mb": 0})
    two.run(training_ranks.in_dygraph, "clipping", {"bucket_mb": 1e-4, "gradient_predivide_factor": 2.0})
    two.run(training_ranks.special_in_dygraph)


def test_settings_of_paddle(two: Ranks) -> None:
    two.run(training_ranks.settings_of_paddle)
