"""Ranks that wait for each other in MXNet's engine are told so in seconds."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def _wait_in_vain() -> str:
    from mxnet_ranks import hvd, mx, raised

    error = raised(hvd.allreduce(mx.nd.ones(4), op=hvd.Sum, name=f"of rank {hvd.rank()}").asnumpy)
    assert isinstance(error, hvd.errors.MismatchError), error
    for rank in range(hvd.size()):
        if rank != hvd.rank():  # what this rank owes
            raised(hvd.allreduce(mx.nd.ones(4), op=hvd.Sum, name=f"of rank {rank}").asnumpy)
    return str(error)


def test_ranks_that_wait_for_each_other_are_told_so(three: Ranks) -> None:
    for message in three.run(_wait_in_vain, timeout=110):  # a rank that is only missed fails after 600
        assert "rank 0 waits for 'of rank 0'" in message
        assert "rank 2 waits for 'of rank 2'" in message
