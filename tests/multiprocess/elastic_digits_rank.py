"""Training in torch whose rank 0 is killed twice; see elastic_jobs.py."""

import elastic_jobs
import torch

import ciranda.torch as hvd

hvd.init()
torch.manual_seed(1)
x, y = map(torch.from_numpy, elastic_jobs.digits())
model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state):
    while state.step < elastic_jobs.N_STEPS:
        while elastic_jobs.must_wait(state.step, hvd.size()):
            state.commit()
        elastic_jobs.maybe_die(state.step, hvd.rank(), hvd.size())
        mine = torch.tensor(elastic_jobs.batch_of(state.step, hvd.rank(), hvd.size()))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[mine]), y[mine].long()).backward()
        optimizer.step()
        state.rows = state.rows + sorted(hvd.allgather(mine, name="rows").tolist())
        state.step += 1
        state.commit()


state = hvd.elastic.TorchState(model, optimizer, step=0, rows=[])
train(state)
weights = [parameter.detach().numpy() for parameter in model.parameters()]
elastic_jobs.report(hvd.rank(), hvd.size(), weights, state.rows, model(x).detach().numpy())
