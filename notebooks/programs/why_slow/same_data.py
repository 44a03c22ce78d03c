"""Train on two ranks; something is missing.

`torchrun --nproc-per-node 2 same_data.py`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
layers = nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)
model = DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} is done", flush=True)
dist.destroy_process_group()
