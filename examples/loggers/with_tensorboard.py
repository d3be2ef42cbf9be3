"""The counters of all ranks in TensorBoard: ciranda run -np 2 python examples/loggers/with_tensorboard.py DIR."""

import sys

import numpy as np
from torch.utils.tensorboard import SummaryWriter

import ciranda as hvd
from ciranda import metrics

hvd.init()
writer = SummaryWriter(sys.argv[1]) if hvd.rank() == 0 else None
for step in range(1, 31):
    hvd.allreduce(np.ones(1000), name="grad")
    hvd.step()
    if step % 10 == 0:
        found = metrics.over_ranks()  # every rank
        if writer is not None:
            for name, value in found.items():
                writer.add_scalar(name, value, step)
if writer is not None:
    writer.close()
