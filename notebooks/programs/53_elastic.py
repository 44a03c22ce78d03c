"""A training that may be killed at any moment, and goes on from its last snapshot.

    python 53_elastic.py --snapshot snapshots                            # one process
    torchrun --nproc-per-node=2 --max-restarts=3 53_elastic.py --snapshot snapshots
    torchrun --nproc-per-node=2 --max-restarts=3 53_elastic.py --snapshot snapshots --sharded

With --sharded no rank holds the whole model (FSDP2), and each writes its own part (DCP). Under
Slurm `srun` starts it, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set. It
needs PyTorch and nothing else. Put your data and your model into the first part.
"""

import argparse
import datetime as dt
import hashlib
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--every", type=int, default=10, help="steps from snapshot to snapshot")
parser.add_argument("--snapshot", type=Path, help="the folder: read first, then written")
parser.add_argument("--sharded", action="store_true", help="FSDP2 and DCP in place of DDP")
parser.add_argument("--kill", choices=["process", "node"], help="a drill, after step 45")
args = parser.parse_args()

# --- 1. The data and the model: the same on every rank.
torch.manual_seed(0)
patterns = torch.rand(10, 784)
labels = torch.randint(10, (1920,))
images = 0.3 * patterns[labels] + 0.7 * torch.rand(1920, 784)
train = TensorDataset(images, labels)
hidden = nn.Linear(784, 128), nn.ReLU(), nn.Dropout(args.dropout)
model = nn.Sequential(*hidden, nn.Linear(128, 10))

# --- 2. Which rank is this, and which device is its own?
if "RANK" not in os.environ:  # started without a launcher: a group of one process
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
if gpus := torch.cuda.device_count():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus)
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
backend, own_gpu = ("cpu:gloo,cuda:nccl", device) if gpus else ("gloo", None)
dist.init_process_group(backend, timeout=dt.timedelta(seconds=60), device_id=own_gpu)
rank, ranks = dist.get_rank(), dist.get_world_size()
random = torch.cuda if gpus else torch  # whose numbers dropout draws

# --- 3. A share of the global batch, and a model that the ranks train together.
sampler = DistributedSampler(train, seed=1)
numbers = torch.Generator()  # of its own: else each epoch draws one of those for dropout
loader = DataLoader(train, args.batch // ranks, sampler=sampler, generator=numbers)
model.to(device)
if args.sharded:
    fully_shard(model[0], mesh=init_device_mesh(device.type, (ranks,)))
    fully_shard(model, mesh=init_device_mesh(device.type, (ranks,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
random.manual_seed(1000 + rank)  # each rank drops other activations
writers = dist.new_group(backend="gloo")  # of its own: they write while the others train
done, writing = 0, None  # steps, and a checkpoint that is being written


# --- 4. All that a training needs to go on, in one file: rank 0 writes what all ranks hold.
def save():
    states = [None] * ranks
    dist.all_gather_object(states, random.get_rng_state())
    if rank == 0:
        both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        part = args.snapshot / "snapshot.part"
        torch.save({**both, "done": done, "random": states}, part)
        part.replace(args.snapshot / "snapshot.pt")  # a reader finds the old file or the new one


def load():
    state = torch.load(args.snapshot / "snapshot.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if len(state["random"]) == ranks:  # else the masks of dropout are others
        random.set_rng_state(state["random"][rank])
    return state["done"]


# --- 5. The same for shards: all ranks call it, and each writes its part.
def save_sharded(last):
    if last:
        last.result()  # one at a time
    weights, state = get_state_dict(model, optimizer)
    everything = {"model": weights, "optimizer": state, "done": done}
    everything[f"random {rank} of {ranks}"] = random.get_rng_state()
    folder = args.snapshot / f"step_{done:06}"
    return dcp.async_save(everything, checkpoint_id=folder, process_group=writers)


def load_sharded(folder):
    weights, state = get_state_dict(model, optimizer)
    everything = {"model": weights, "optimizer": state, "done": 0}
    mine = f"random {rank} of {ranks}"
    if mine in dcp.FileSystemReader(folder).read_metadata().state_dict_metadata:
        everything[mine] = random.get_rng_state()
    dcp.load(everything, checkpoint_id=folder)  # into these tensors, whatever wrote them
    set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=everything["optimizer"]
    )
    if mine in everything:
        random.set_rng_state(everything[mine])
    return everything["done"]


# --- 6. Go on where the last snapshot is.
if args.snapshot:
    args.snapshot.mkdir(parents=True, exist_ok=True)
    whole = sorted(file.parent for file in args.snapshot.glob("step_*/.metadata"))
    if args.sharded and whole:  # .metadata is written last
        done = load_sharded(whole[-1])
    elif not args.sharded and (args.snapshot / "snapshot.pt").exists():
        done = load()
own = [own_gpu] if gpus else None
replica = model if args.sharded else DistributedDataParallel(model, device_ids=own)
print(f"rank {rank} of {ranks} on {device}: {done} steps are done", flush=True)

# --- 7. The loop. The step decides the epoch, and what of it is done.
first = done
for epoch in range(done // len(loader), args.epochs):
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(loader, start=epoch * len(loader)):
        if number < done:
            continue
        optimizer.zero_grad()
        loss = cross_entropy(replica(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        done += 1
        if done == 45 and args.kill == "node":
            os.kill(os.getppid(), signal.SIGKILL)  # its torchrun, too
        if done == 45 and (args.kill == "node" or (args.kill and first == 0 and rank == ranks - 1)):
            os.kill(os.getpid(), signal.SIGKILL)
        if args.snapshot and done % args.every == 0:
            writing = save_sharded(writing) if args.sharded else save()

# --- 8. What all ranks have now, as one fingerprint: one bit that differs changes it.
if writing:
    writing.result()
weights = [
    getattr(one, "full_tensor", lambda one=one: one)() for one in model.state_dict().values()
]
if rank == 0:
    size = sum(one.abs().sum().item() for one in weights)
    digest = hashlib.sha256(b"".join(one.cpu().numpy().tobytes() for one in weights)).hexdigest()
    print(f"the end: sum of |weights| {size:.3f}, fingerprint {digest[:12]}", flush=True)

dist.barrier()  # else a rank that ends first can make another one abort
del replica  # a DDP model that outlives its group can hang
dist.destroy_process_group()
