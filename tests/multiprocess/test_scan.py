"""scan over real processes, against NumPy: every operation, type and length; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from expected import COUNTS, DTYPES, OPS, accepts, assert_reduced, values
from ranks import Ranks

import ciranda as hvd

pytestmark = pytest.mark.multiprocess


def _check_all(op: str) -> None:
    rank = hvd.rank()
    for dtype in DTYPES:
        if not accepts(op, dtype):
            continue
        for count in COUNTS:
            inputs = [values(each, count, dtype, op) for each in range(rank + 1)]
            for _ in range(3):  # from the second time on ranks may go on without the coordinator
                result = hvd.scan(inputs[rank], op=OPS[op], name=f"{op}.{dtype}.{count}")
                assert_reduced(result, inputs, op, (op, dtype, count))
            assert hvd.scan(inputs[rank], op=OPS[op]).tobytes() == result.tobytes()
            together = hvd.grouped_scan([inputs[rank], inputs[rank][:1]], op=OPS[op])
            assert together[0].tobytes() == result.tobytes()
            assert together[1].tobytes() == result[:1].tobytes()
            np.testing.assert_array_equal(inputs[rank], values(rank, count, dtype, op), err_msg="the input changed")


@pytest.mark.parametrize("op", list(OPS))
def test_every_type_and_length(world: Ranks, op: str) -> None:
    world.run(_check_all, op)


def _check_sums() -> None:
    rank = hvd.rank()
    for step in range(20):
        total = hvd.scan(np.float64(rank + step))
        assert total.shape == ()
        assert total == (rank + 1) * (rank / 2 + step)
    scaled = hvd.synchronize(hvd.scan_async(np.ones((2, 3)), prescale_factor=3.0, postscale_factor=0.5))
    assert (scaled == 1.5 * (rank + 1)).all()
    assert (hvd.scan(np.full(5, 6.0 * rank), op=hvd.Average) == 3.0 * rank).all()


def test_sums_are_of_the_ranks_up_to_this_one(world: Ranks) -> None:
    world.run(_check_sums)


def _check_refusals() -> None:
    with pytest.raises(ValueError, match="adasum is one of allreduce only"):
        hvd.scan(np.ones(3), op=hvd.Adasum)
    with pytest.raises(ValueError, match="no min of complex64"):
        hvd.scan(np.zeros(3, np.complex64), op=hvd.Min)
    if hvd.size() > 1:
        with pytest.raises(hvd.errors.MismatchError, match="collective allreduce on rank 0 but scan on rank"):
            (hvd.scan if hvd.rank() > 0 else hvd.allreduce)(np.ones(3), name="x", op=hvd.Sum)


def test_what_makes_no_sense_is_refused(world: Ranks) -> None:
    world.run(_check_refusals)
