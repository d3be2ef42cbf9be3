"""Python imports this when it starts: every program whose path leads here has the fake torch.cuda."""

import torch_cuda

torch_cuda.install()
