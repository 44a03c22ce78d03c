"""Accumulate the gradients of eight micro-batches on each of two ranks.

`torchrun --nproc-per-node 2 micro_steps.py`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MICRO = 8

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(16384, 256), torch.randint(10, (16384,)))
sampler = DistributedSampler(data, seed=1)
loader = DataLoader(data, batch_size=16, sampler=sampler)
layers = nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
model = DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(loader, 1):
        (cross_entropy(model(x), y) / MICRO).backward()
        if number % MICRO == 0:
            optimizer.step()
            optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} is done", flush=True)
dist.destroy_process_group()
