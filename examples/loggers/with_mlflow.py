"""The counters of all ranks in MLflow, by rank 0: ciranda run -np 2 python examples/loggers/with_mlflow.py DIR."""

import sys
from contextlib import nullcontext
from pathlib import Path

import mlflow
import numpy as np

import ciranda as hvd
from ciranda import metrics

hvd.init()
is_first = hvd.rank() == 0
if is_first:
    mlflow.set_tracking_uri(Path(sys.argv[1]).resolve().as_uri())
with mlflow.start_run() if is_first else nullcontext():
    for step in range(1, 31):
        hvd.allreduce(np.ones(1000), name="grad")
        hvd.step()
        if step % 10 == 0:
            found = metrics.over_ranks()  # every rank
            if is_first:
                mlflow.log_metrics(found, step=step)
