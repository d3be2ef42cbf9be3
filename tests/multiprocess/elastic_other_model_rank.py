"""A rank of an elastic job in torch: rank 1 is lost, and whatever is started in its place has another model.

python elastic_other_model_rank.py FOLDER: the others train until such a process has been refused.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import ciranda.torch as hvd
from ciranda.errors import MismatchError

REFUSED = Path(sys.argv[1]) / "refused"
IS_FIRST_LIFE = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

hvd.init()
model = torch.nn.Linear(4 if IS_FIRST_LIFE else 5, 1)


@hvd.elastic.run
def train(state: Any) -> None:
    while not hvd.allreduce(torch.tensor(float(REFUSED.exists())), op=hvd.Max).item():
        if state.step == 5 and hvd.rank() == 1 and IS_FIRST_LIFE and hvd.size() == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        state.step += 1
        state.commit()


state = hvd.elastic.TorchState(model, step=0)
try:
    train(state)
except MismatchError as error:
    if "[1, 5] on rank 2" in str(error):  # beside the shape of whoever came first, or last
        REFUSED.touch()
    raise
assert state.step > 5
