"""Data-parallel training: one process or many, GPUs or CPUs, one machine or several.

    python 51_ddp.py                                # one process
    torchrun --nproc-per-node=2 51_ddp.py           # two; =gpu in place of =2: one for each GPU

Under Slurm `srun` starts it, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set.
It needs PyTorch and nothing else. Put your data and your model into the first part.
"""

import argparse
import datetime as dt
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
args = parser.parse_args()

# --- 1. The data and the model: the same on every rank.
torch.manual_seed(0)
patterns = torch.rand(10, 784)
labels = torch.randint(10, (3000,))
images = 0.3 * patterns[labels] + 0.7 * torch.rand(3000, 784)
train, test = TensorDataset(images[:2000], labels[:2000]), (images[2000:], labels[2000:])
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

# --- 2. Which rank is this, and which device is its own?
if "RANK" not in os.environ:  # started without a launcher: a group of one process
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
if gpus := torch.cuda.device_count():  # all of the machine's, or only those of this rank
    device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus), "nccl"
    torch.cuda.set_device(device)
else:
    device, backend = torch.device("cpu"), "gloo"
own_gpu = device if gpus else None
dist.init_process_group(backend, timeout=dt.timedelta(seconds=60), device_id=own_gpu)
rank, ranks = dist.get_rank(), dist.get_world_size()

# --- 3. What DDP needs: a share of the examples, and a replica of the model.
sampler = DistributedSampler(train, seed=1)
loader = DataLoader(train, batch_size=args.batch // ranks, sampler=sampler)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
replica = DistributedDataParallel(model, device_ids=[own_gpu] if gpus else None)
print(f"rank {rank} of {ranks} on {device}", flush=True)

# --- 4. The loop of every PyTorch program.
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(replica(x.to(device)), y.to(device)).backward()
        optimizer.step()

    # --- 5. Every rank tests its share; the counts are summed.
    x, y = (part[rank::ranks].to(device) for part in test)
    with torch.no_grad():
        counts = torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y), device=device)])
    dist.all_reduce(counts)

    # --- 6. Rank 0 reports.
    if rank == 0:
        size = sum(one.abs().sum().item() for one in model.parameters())
        right = counts[0].item() / counts[1].item()
        print(f"epoch {epoch}: {right:.1%} right, sum of |weights| {size:.3f}", flush=True)

dist.barrier()  # else a rank that ends first can make another one abort
dist.destroy_process_group()
