"""A script for `horovod.tensorflow.elastic` goes on when rank 0 is killed."""

from __future__ import annotations

from pathlib import Path

import elastic_jobs
import pytest

pytestmark = pytest.mark.multiprocess


@pytest.mark.slow
def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    elastic_jobs.check(Path(__file__).with_name("elastic_script.py"), tmp_path)
