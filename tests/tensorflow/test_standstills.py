"""Ranks that wait for each other in TensorFlow's programs, or in one and in Python, are told so in seconds."""

from __future__ import annotations

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

#: Seconds in which the error comes, however busy the machine is; a rank that is only missed fails after 600.
SOON = 110


def _wait_in_vain(where: str) -> str:
    import numpy as np
    import tensorflow as tf
    from tf_work import ended_with

    import ciranda
    import ciranda.tensorflow as hvd

    name = f"{where} of rank {hvd.rank()}"
    in_program = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name=name))
    if where == "in Python" and hvd.rank() == 0:
        error = ended_with(lambda: ciranda.allreduce(np.ones(4), op=hvd.Sum, name=name))
    else:
        error = hvd.as_ciranda_error(ended_with(lambda: in_program(tf.ones(4))))
    assert isinstance(error, ciranda.errors.MismatchError), error
    for rank in range(hvd.size()):
        if rank != hvd.rank():  # what this rank owes
            ended_with(lambda rank=rank: ciranda.allreduce(np.ones(4), op=hvd.Sum, name=f"{where} of rank {rank}"))
    return str(error)


def test_ranks_that_wait_for_each_other_are_told_so(environment: dict[str, str]) -> None:
    with Ranks(2, env=environment) as ranks:  # of their own: a thread waits for two minutes after XLA has compiled
        for where in ("in TensorFlow", "in Python"):
            for message in ranks.run(_wait_in_vain, where, timeout=SOON):
                assert f"rank 0 waits for '{where} of rank 0'; rank 1 waits for '{where} of rank 1'" in message
