"""Training with Accelerate, as its users write it."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from torch.utils.data import DataLoader, TensorDataset

options = common.options()
handlers = []
if options.chosen_by == "init first":
    import ciranda.torch.distributed

    dist.init_process_group(options.backend)
elif options.chosen_by == "kwargs":
    import ciranda.torch.distributed  # noqa: F401

    handlers = [InitProcessGroupKwargs(backend=options.backend)]
accelerator = Accelerator(cpu=options.chosen_by != "not said", kwargs_handlers=handlers)
loader = DataLoader(TensorDataset(*common.samples()), batch_size=options.batch_size)
model = common.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

steps = []
for inputs, targets in loader:
    steps.append([int(number) for number in inputs[:, 0]])
    loss = (model(inputs) - targets).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()

gathered = accelerator.gather(torch.tensor([accelerator.process_index]))
common.write_report(
    options.report,
    accelerator.process_index,
    accelerator.num_processes,
    steps,
    accelerator.unwrap_model(model),
    backend=dist.get_backend() if dist.is_initialized() else None,
    gathered=gathered.tolist(),
)
accelerator.end_training()
