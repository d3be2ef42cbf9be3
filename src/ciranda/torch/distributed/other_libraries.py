"""What libraries over torch.distributed keep of a process group that has ended."""

from __future__ import annotations

import sys


def forget_group() -> None:
    """Have Accelerate look at the next group. It keeps the first one's rank and size for as long as the process lives.

    An `Accelerator` of the next world would divide the data among the ranks of the last one, and leave samples out. One
    of the last world raises AttributeError, which says that the state was reset. Without a group Accelerate keeps its
    state.
    """
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is not None and accelerate.PartialState._shared_state.get("distributed_type", "NO") != "NO":
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)  # as Transformers does
        accelerate.GradientState._reset_state()
