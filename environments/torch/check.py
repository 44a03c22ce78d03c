"""Two ranks: the gradient of DistributedDataParallel is the mean of both."""

import datetime as dt

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
rank, ranks = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
model(torch.full((1, 3), rank + 1.0)).sum().backward()
gradient = model.module.weight.grad
assert torch.allclose(gradient, torch.full((1, 3), (ranks + 1) / 2)), gradient
print(f"rank {rank} of {ranks}: torch {torch.__version__}, gradients are averaged")
dist.destroy_process_group()
