"""Training with Lightning, as its users write it."""

from __future__ import annotations

import common
import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

options = common.options()
n_devices = common.GLOBAL_BATCH // options.batch_size
strategy = "auto"
if n_devices > 1:
    strategy = DDPStrategy(process_group_backend=options.backend)
    if options.backend == "ciranda":
        import ciranda.torch.distributed
if options.chosen_by == "init first":
    dist.init_process_group(options.backend)


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = common.model()
        self.steps: list[list[int]] = []

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        self.steps.append([int(number) for number in inputs[:, 0]])
        return (self.layers(inputs) - targets).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=n_devices,
    strategy=strategy,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
module = Regression()
trainer.fit(module, DataLoader(TensorDataset(*common.samples()), batch_size=options.batch_size))
found = {}
if options.backend == "ciranda":
    found["world"] = [ciranda.rank(), ciranda.size(), ciranda.local_rank(), ciranda.local_size()]
common.write_report(
    options.report,
    trainer.global_rank,
    trainer.world_size,
    module.steps,
    module.layers,
    backend=dist.get_backend() if dist.is_initialized() else None,
    **found,
)
