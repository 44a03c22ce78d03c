"""Five steps of DDP, of `fully_shard` if so told, or of one process; rank 0 saves the weights."""

import atexit
import datetime as dt
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
random = np.random.default_rng(0)
images = torch.tensor(random.normal(size=(5, 32, 20)), dtype=torch.float32)
labels = torch.tensor(random.integers(0, 10, size=(5, 32)))
sharded = sys.argv[2:] == ["fully_shard"] and ranks > 1
torch.manual_seed(0 if sharded else rank)  # DDP broadcasts the weights of rank 0
model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
replica = model
if ranks > 1:
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
    if sharded:
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        assert model[0].weight.to_local().shape[0] == 16 // ranks
    else:
        replica = DistributedDataParallel(model)
optimizer = torch.optim.SGD(replica.parameters(), lr=0.1, momentum=0.9)
for batch, wanted in zip(images, labels, strict=True):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(replica(batch[rank::ranks]), wanted[rank::ranks]).backward()
    optimizer.step()
whole = [each.full_tensor() if sharded else each for each in model.parameters()]
weights = np.concatenate([each.detach().numpy().ravel() for each in whole])
print(f"rank {rank} of {ranks}: checksum {weights.sum():.4f}")
if rank == 0:
    np.save(sys.argv[1], weights)
if ranks > 1:
    dist.destroy_process_group()
    # In torch 2.13 Gloo's threads can outlive the group: a late one aborts a Python that ends.
    sys.stdout.flush()
    atexit.register(os._exit, 0)
