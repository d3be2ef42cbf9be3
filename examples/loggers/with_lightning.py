"""The counters of all ranks in Lightning's logger: ciranda run -np 2 python examples/loggers/with_lightning.py DIR."""

import sys

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy

import ciranda.torch.distributed  # noqa: F401 (registers the backend "ciranda")
from ciranda import metrics


class Counters(Callback):
    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        found = metrics.over_ranks()  # every rank
        if trainer.is_global_zero:
            trainer.logger.log_metrics(found, step=trainer.global_step)


Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="ciranda"), max_epochs=2,
    logger=CSVLogger(sys.argv[1]), callbacks=[Counters()], enable_progress_bar=False, enable_model_summary=False,
    enable_checkpointing=False,
).fit(BoringModel())  # fmt: skip
