"""A plain Horovod script: a convolutional network on handwritten digits.

horovodrun -np 2 python examples/horovod/digits_cnn.py
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

EPOCHS = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    hvd.init()
    if device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.manual_seed(42 + hvd.rank())
    torch.set_num_threads(1)

    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    data = TensorDataset(images, torch.tensor(digits.target))
    train_set, test_set = torch.utils.data.random_split(data, [1437, 360], torch.Generator().manual_seed(1))
    sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)

    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    for epoch in range(EPOCHS):
        model.train()
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
        mean_loss = hvd.allreduce(loss.detach(), name="loss")
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{EPOCHS}  loss {mean_loss.item():.4f}")

    model.eval()
    mine = list(range(hvd.rank(), len(test_set), hvd.size()))
    right = sum(model(test_set[i][0][None].to(device)).argmax().item() == test_set[i][1].item() for i in mine)
    accuracy = hvd.allreduce(torch.tensor(right), op=hvd.Sum, name="right").item() / len(test_set)
    if hvd.rank() == 0:
        print(f"test accuracy {accuracy:.1%} on {hvd.size()} processes")
    assert accuracy > 0.9, "this training has not worked"
    hvd.shutdown()


if __name__ == "__main__":
    main()
