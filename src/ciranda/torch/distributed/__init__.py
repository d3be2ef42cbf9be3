"""`ciranda` as a backend of torch.distributed, for tensors on the CPU and on GPUs.

    import ciranda.torch.distributed
    torch.distributed.init_process_group("ciranda")

Then DistributedDataParallel, FSDP2, DTensor and the functions of torch.distributed work over Ciranda's engine, with
subgroups. Nothing is compiled against torch.

Under `ciranda run` the process group is the world itself; `ciranda.init()` need not be called. Under `torchrun`, and
other launchers that set torch's variables, rendezvous goes through the process group's store: rank 0 hosts Ciranda's
rendezvous, and puts its address and the job's secret into that store. That is as safe as the store is.
"""

import torch.distributed as _dist

from ciranda.torch.distributed import rendezvous as _rendezvous
from ciranda.torch.distributed.ddp import ddp_comm_hook
from ciranda.torch.distributed.process_group import ProcessGroup
from ciranda.torch.distributed.work import Work

__all__ = ["ProcessGroup", "Work", "ddp_comm_hook"]

if not hasattr(_dist.Backend, "CIRANDA"):
    _dist.Backend.register_backend("ciranda", _rendezvous.form_group, extended_api=True, devices=["cpu", "cuda"])
    _rendezvous.answer_for_the_environment()
