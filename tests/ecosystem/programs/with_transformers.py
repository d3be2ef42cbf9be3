"""Training with transformers' Trainer, as its users write it: a tiny BERT with random weights."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

options = common.options()
more = {}
if options.chosen_by == "init first":
    import ciranda.torch.distributed

    dist.init_process_group(options.backend)
elif options.chosen_by == "ddp_backend":
    import ciranda.torch.distributed  # noqa: F401

    more["ddp_backend"] = options.backend
arguments = TrainingArguments(
    output_dir=str(options.report / "out"),
    use_cpu=True,
    per_device_train_batch_size=options.batch_size,
    max_steps=common.N_STEPS,
    learning_rate=0.01,
    optim="sgd",
    lr_scheduler_type="constant",
    max_grad_norm=0.0,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    seed=3,
    average_tokens_across_devices=False,  # it multiplies the loss of a model that does not count tokens
    **more,
)


class Sentences(Dataset):
    """Each sentence begins with its own number."""

    def __len__(self) -> int:
        return common.N_SAMPLES

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        words = torch.randint(0, 64, (7,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": torch.cat([torch.tensor([number]), words]), "labels": torch.tensor(number % 2)}


torch.manual_seed(2)
config = BertConfig(
    vocab_size=64,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config).double()
steps: list[list[int]] = []
model.register_forward_pre_hook(
    lambda _module, _arguments, given: steps.append(given["input_ids"][:, 0].tolist()), with_kwargs=True
)
trainer = Trainer(model=model, args=arguments, train_dataset=Sentences())
trainer.train()
common.write_report(
    options.report,
    arguments.process_index,
    arguments.world_size,
    steps,
    model,
    backend=dist.get_backend() if dist.is_initialized() else None,
)
