"""Training with Lightning in an elastic job: rank 0 is killed once, and a Trainer is made for each world.

python elastic_lightning.py FOLDER: each rank that ends prints its steps, the size of its world, and its weights' sum.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import common
import lightning
import torch
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

import ciranda.torch as hvd
import ciranda.torch.distributed  # noqa: F401  (the backend)

MARK = Path(sys.argv[1]) / "killed"
STEPS = 20


class PresentWorld(ClusterEnvironment):
    """The world of now: the variables of the environment stay those of the first."""

    creates_processes_externally = True
    main_address = "localhost"
    main_port = 0

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return hvd.size()

    def global_rank(self) -> int:
        return hvd.rank()

    def local_rank(self) -> int:
        return hvd.local_rank()

    def node_rank(self) -> int:
        return 0

    def set_world_size(self, size: int) -> None:
        pass

    def set_global_rank(self, rank: int) -> None:
        pass


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = common.model()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        return (self.layers(inputs) - targets).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Commit(lightning.Callback):
    def on_train_batch_end(self, *ignored: Any) -> None:
        state.step += 1
        if state.step == 5 and hvd.rank() == 0 and not MARK.exists():
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()


@hvd.elastic.run
def train(state: Any) -> None:
    if state.step == STEPS:
        return
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=hvd.local_size(),
        strategy=DDPStrategy(process_group_backend="ciranda"),
        plugins=[PresentWorld()],
        max_epochs=-1,
        max_steps=STEPS - state.step,
        callbacks=[Commit()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(*common.samples()), batch_size=2))


hvd.init()
module = Regression()
state = hvd.elastic.TorchState(module, step=0)
train(state)
digest = sum(float(parameter.double().sum()) for parameter in module.parameters())
sys.stdout.write(f"{state.step} {hvd.size()} {digest:.12f}\n")
