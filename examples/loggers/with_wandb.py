"""The counters of all ranks in W&B, by rank 0: ciranda run -np 2 python examples/loggers/with_wandb.py DIR.

Without an account: WANDB_MODE=offline, and `wandb sync` later.
"""

import sys

import numpy as np
import wandb

import ciranda as hvd
from ciranda import metrics

hvd.init()
run = wandb.init(project="ciranda", dir=sys.argv[1]) if hvd.rank() == 0 else None
for step in range(1, 31):
    hvd.allreduce(np.ones(1000), name="grad")
    hvd.step()
    if step % 10 == 0:
        found = metrics.over_ranks()  # every rank
        if run is not None:
            run.log(found, step=step)
if run is not None:
    run.finish()
