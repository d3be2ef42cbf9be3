"""A rank of an elastic job in torch: rank 1 is lost, and what is started in its place has other models, in turn.

python elastic_other_model_rank.py FOLDER: the others train until each of these has been refused.
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

FOLDER = Path(sys.argv[1])
IS_FIRST_LIFE = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
OTHERS = {
    "[1, 5]": torch.nn.Linear(5, 1),
    "float64": torch.nn.Linear(4, 1).double(),
    "broadcast_parameters.0.weight": torch.nn.Sequential(torch.nn.Linear(4, 1)),
}


def to_refuse() -> list[str]:
    """What is still to be refused, by a word of the error."""
    return [word for word in OTHERS if not (FOLDER / word).exists()]


hvd.init()
WORD = to_refuse()[0]
model = torch.nn.Linear(4, 1) if IS_FIRST_LIFE else OTHERS[WORD]


@hvd.elastic.run
def train(state: Any) -> None:
    while hvd.allreduce(torch.tensor(len(to_refuse())), op=hvd.Max).item():
        if state.step == 5 and hvd.rank() == 1 and IS_FIRST_LIFE and hvd.size() == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        state.step += 1
        state.commit()


state = hvd.elastic.TorchState(model, step=0)
try:
    train(state)
except MismatchError as error:
    if WORD in str(error):
        (FOLDER / WORD).touch()
    raise
assert state.step > 5
