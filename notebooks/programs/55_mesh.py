"""Tensor, sequence and pipeline parallelism and FSDP, alone or together, on one device mesh.

    python 55_mesh.py                                               # one process
    torchrun --nproc-per-node=4 55_mesh.py --tensor 4               # four; =gpu: one for each GPU
    torchrun --nproc-per-node=4 55_mesh.py --pipeline 4 --schedule Interleaved1F1B
    torchrun --nproc-per-node=4 55_mesh.py --shard 2 --tensor 2 --sequence

It needs PyTorch and nothing else. The numbers of ranks are multiplied: 2 x 2 needs four. Put your
model and your data into the first part.
"""

import argparse
import datetime as dt
import logging
import os
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

parser = argparse.ArgumentParser()
parser.add_argument("--tensor", type=int, default=1, help="ranks that share a layer")
parser.add_argument("--sequence", action="store_true", help="with them, cut the sequence, too")
parser.add_argument("--pipeline", type=int, default=1, help="ranks in a row, with some layers each")
parser.add_argument("--schedule", default="1F1B", help="GPipe, 1F1B or Interleaved1F1B")
parser.add_argument("--shard", type=int, default=1, help="FSDP: ranks that share the batch")
parser.add_argument("--batch", type=int, default=16, help="sequences in a step")
args = parser.parse_args()

# --- 1. The model and the data: the same on every rank.
LAYERS, WIDTH, TOKENS, STEPS, MICRO_BATCHES = 8, 64, 16, 3, 8


class Layer(nn.Module):
    """A layer of a transformer without its attention: a norm, and an MLP four times as wide."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """The output has the shape of x."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


torch.manual_seed(0)
model = nn.Sequential(*(Layer() for _ in range(LAYERS)))
count = sum(one.numel() for one in model.parameters())
inputs = torch.randn(STEPS, args.batch, TOKENS, WIDTH)
targets = torch.randn(STEPS, args.batch, TOKENS, WIDTH)

# --- 2. Which rank is this, and which device is its own?
if "RANK" not in os.environ:  # started without a launcher: a group of one process
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
if gpus := torch.cuda.device_count():
    device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus), "nccl"
    torch.cuda.set_device(device)
else:
    device, backend = torch.device("cpu"), "gloo"
own_gpu = device if gpus else None
dist.init_process_group(backend, timeout=dt.timedelta(seconds=60), device_id=own_gpu)

# --- 3. Where in the mesh is it? Ranks that differ in the last coordinate only are neighbours.
shape, names = (args.pipeline, args.shard, args.tensor), ("pipeline", "shard", "tensor")
mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
share = mesh.get_local_rank("shard")
inputs, targets = (one[:, share :: args.shard].to(device) for one in (inputs, targets))

# --- 4. Tensor parallelism: each layer by columns, then by rows.
plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
if args.sequence:  # what is between two layers is cut by tokens
    plan = {
        "norm": SequenceParallel(use_local_output=False),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    part, parts = mesh.get_local_rank("tensor"), args.tensor
    inputs, targets = (one.chunk(parts, dim=2)[part] for one in (inputs, targets))
if args.tensor > 1:
    for layer in model:
        parallelize_module(layer, mesh["tensor"], plan)

# --- 5. Pipeline: which layers are here? Interleaved, a rank has two shorter stages.
name = args.schedule
chunks = 2 if name.startswith("Interleaved") else 1
stages = args.pipeline * chunks if args.pipeline > 1 else 1
each = LAYERS // stages
mine = range(mesh.get_local_rank("pipeline"), stages, args.pipeline)
parts = [model[number * each : (number + 1) * each].to(device) for number in mine]

# --- 6. FSDP: a unit for each layer that is here, over the ranks that share the batch.
if args.shard > 1:
    for part in parts:
        for layer in part:
            fully_shard(layer, mesh=mesh["shard"])
        fully_shard(part, mesh=mesh["shard"])
weights = [one for part in parts for one in part.parameters()]
optimizer = torch.optim.SGD(weights, lr=4.0)


# --- 7. What a rank sends: of each collective, what a ring of n ranks sends for these bytes.
SENDS = {
    "all_reduce": lambda nbytes, n: 2 * (n - 1) / n * nbytes,
    "all_gather": lambda nbytes, n: (n - 1) * nbytes,  # given is this rank's part
    "reduce_scatter": lambda nbytes, n: (n - 1) / n * nbytes,  # given are all parts
    "send": lambda nbytes, n: nbytes,
}


class Watch(TorchDispatchMode):
    """Counts the collectives of a rank, and the bytes that it sends by these formulas."""

    def __init__(self):
        super().__init__()
        self.calls, self.sent = Counter(), 0.0

    def __torch_dispatch__(self, call, _, given=(), named=None):
        space, what = str(call).split(".")[:2]
        what = what.strip("_").replace("allreduce", "all_reduce").replace("allgather", "all_gather")
        kind = next((one for one in SENDS if what.startswith(one)), None)
        if "c10d" in space and kind:
            tensors = tree_leaves(given[1] if "gather_base" in what else given[0])
            if "scatter_base" in what:
                tensors = [given[1]]
            self.calls[kind] += 1
            self.sent += SENDS[kind](sum(one.nbytes for one in tensors), size_of_group(given))
        return call(*given, **(named or {}))


def size_of_group(given):
    """A collective names its group last, or gives an object that looks like others."""
    if isinstance(given[-1], str):
        return _resolve_process_group(given[-1]).size()
    for one in given:
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            return dist.ProcessGroup.unbox(one).size()
    raise ValueError(given)


# --- 8. The loop.
watch, run = Watch(), None


def mean_square(y, target):
    """Over all tokens: a rank that has some of them must not take the mean over its own."""
    return nn.functional.mse_loss(y, target) / (args.tensor if args.sequence else 1)


if args.pipeline > 1:
    made = [
        PipelineStage(part, number, stages, device, group=mesh.get_group("pipeline"))
        for part, number in zip(parts, mine, strict=True)
    ]
    kind = get_schedule_class(name)
    single = issubclass(kind, PipelineScheduleSingle)
    run = kind(made[0] if single else made, MICRO_BATCHES, loss_fn=mean_square)
first, last = 0 in mine, stages - 1 in mine
for x, y in zip(inputs, targets, strict=True):
    watch.calls.clear()
    watch.sent = 0.0
    with watch:
        optimizer.zero_grad()
        if run:
            run.step(*([x] if first else []), target=y if last else None)
        else:
            mean_square(parts[0](x), y).backward()
        optimizer.step()

# --- 9. The report: what is held, what was sent, and a number by which runs can be compared.
held = sum(getattr(one, "_local_tensor", one).numel() for one in weights)
layer = count / LAYERS
print(
    f"rank {dist.get_rank()} of {dist.get_world_size()} on {device}: holds {held / layer:.2f} "
    f"layers, sends {watch.sent / 1e6:.3f} MB;",
    *(f"{n} {call}" for call, n in watch.calls.items()),
    flush=True,
)
logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)  # it gathers in two steps
whole = [one.full_tensor() if isinstance(one, DTensor) else one for one in weights]
total = sum(one.double().abs().sum() for one in whole).detach()
dist.all_reduce(total, group=mesh.get_group("pipeline"))  # of all stages
if dist.get_rank() == 0:
    print(f"sum of |weights| {total.item():.6f}", flush=True)
dist.barrier()
del run, optimizer
dist.destroy_process_group()
