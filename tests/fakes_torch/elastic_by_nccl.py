"""A training by NCCL under `ciranda run --elastic`, of which a rank is killed while results are under way on GPUs.

`python elastic_by_nccl.py FOLDER`: a step adds the number of ranks to all weights, and to a number on the CPU. In the
third step rank 2's GPU stands still, so all waits let a result pass that is lost: nothing of it may be committed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch

import ciranda.torch as hvd

N_STEPS = 6
FOLDER = Path(sys.argv[1])
#: That never ends.
KERNEL = ctypes.c_void_p()


def stand_still() -> None:
    """The current stream comes to nothing any more."""
    begin = ctypes.CDLL("libcuda.so.1").fake_cuda_begin_kernel
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert begin(ctypes.byref(KERNEL), stream, b"endless", None, ctypes.c_size_t(0)) == 0


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    torch.cuda.set_device(hvd.local_rank())
    while state.step < N_STEPS:
        hvd.allreduce(torch.ones(1000, device="cuda"), name="makes the communicator")
        hvd.barrier()
        is_last = state.step == 2 and hvd.size() == 3 and not (FOLDER / "0").exists()
        update = torch.ones(1000, device="cuda")
        if is_last and hvd.rank() == 2:
            stand_still()
        hvd.allreduce_(update, op=hvd.Sum, name="update")
        if is_last:
            (FOLDER / str(hvd.rank())).touch()
            while hvd.rank() == 2:
                if len(list(FOLDER.iterdir())) == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.01)
        state.weights.weight.data += update.cpu()
        state.expected += hvd.size()
        state.step += 1
        state.commit()


hvd.init()
last = hvd.elastic.TorchState(weights=torch.nn.Linear(1000, 1, bias=False), expected=0.0, step=0)
last.weights.weight.data.zero_()
train(last)
assert last.weights.weight.unique().tolist() == [last.expected], (last.weights.weight, last.expected)
sys.stdout.write(f"FOUND elastic {hvd.rank()} of {hvd.size()}: right\n")
