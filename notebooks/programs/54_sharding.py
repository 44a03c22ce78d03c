"""Sharded data parallelism: what each rank holds, and which collectives it calls.

    python 54_sharding.py --how ddp                             # one process
    torchrun --nproc-per-node=4 54_sharding.py --how fsdp       # four; =gpu: one for each GPU
    torchrun --nproc-per-node=4 54_sharding.py --how fsdp --unit model --bf16 --replicas 2

It needs PyTorch and nothing else. Put your model and your data into the first part. Bytes are
counted in layers: 8 layers of weights, gradients and Adam's two moments are 32.
"""

import argparse
import datetime as dt
import os
import weakref
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

parser = argparse.ArgumentParser()
parser.add_argument("--how", choices=["ddp", "zero1", "fsdp"], default="fsdp")
parser.add_argument("--unit", choices=["layer", "model"], default="layer", help="of fsdp")
parser.add_argument("--keep", action="store_true", help="fsdp: weights stay whole after forward")
parser.add_argument("--prefetch", type=int, default=0, help="fsdp: layers gathered ahead")
parser.add_argument("--bf16", action="store_true", help="fsdp: compute and gather in bfloat16")
parser.add_argument("--replicas", type=int, default=1, help="fsdp: HSDP with so many")
args = parser.parse_args()

# --- 1. The model and the data: the same on every rank.
LAYERS, WIDTH, EXAMPLES, STEPS = 8, 256, 22, 3
torch.manual_seed(0)
layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
images = torch.randn(STEPS, EXAMPLES, WIDTH)
labels = torch.randint(WIDTH, (STEPS, EXAMPLES))

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
rank, ranks = dist.get_rank(), dist.get_world_size()
model.to(device)
images, labels = images.to(device), labels.to(device)

# --- 3. Who holds what: all of it, a share of the optimizer's state, or a share of everything.
replica = model
if args.how == "fsdp":
    shape, names = (args.replicas, ranks // args.replicas), ("replicate", "shard")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    settings = {"mesh": mesh if args.replicas > 1 else mesh["shard"]}
    settings["reshard_after_forward"] = not args.keep
    if args.bf16:
        types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
        settings["mp_policy"] = MixedPrecisionPolicy(**types)
    for layer in layers if args.unit == "layer" else ():
        fully_shard(layer, **settings)  # a unit of its own: gathered and freed alone
    fully_shard(model, **settings)  # the last unit is what is left
    for number, layer in enumerate(layers if args.prefetch else ()):
        layer.set_modules_to_forward_prefetch(layers[number + 1 :][: args.prefetch])
elif ranks > 1:
    replica = DistributedDataParallel(model, device_ids=[own_gpu] if gpus else None)
if args.how == "zero1":
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # after fully_shard


# --- 4. What a rank holds, and what it calls.
class Watch(TorchDispatchMode):
    """The bytes of all tensors that are alive, after each operation; collectives, and products."""

    def __init__(self):
        super().__init__()
        self.storages, self.held, self.order = {}, [], []

    def __torch_dispatch__(self, call, _, given=(), named=None):
        result = call(*given, **(named or {}))
        leaves = tree_leaves((given, named, result))
        for one in [getattr(leaf, "_local_tensor", leaf) for leaf in leaves]:  # of DTensors
            if type(one) in (torch.Tensor, nn.Parameter):
                storage = one.untyped_storage()
                self.storages[storage._cdata] = weakref.ref(storage)
        alive = [reference() for reference in self.storages.values()]
        self.held.append(sum(one.nbytes() for one in alive if one is not None))
        what = str(call).replace("c10d._", "c10d.").replace("_base_", "").split(".")
        if what[0] == "c10d" or what[1] in ("mm", "addmm"):
            self.order.append(what[1].strip("_").replace("_single", ""))
        return result


# --- 5. The loop. Shares are uneven, so each loss is a sum, divided by all examples.
watch = Watch()
for x, y in zip(images, labels, strict=True):
    watch.held, watch.order = [], []
    if gpus:
        torch.cuda.reset_peak_memory_stats()
    with watch:
        optimizer.zero_grad()
        loss = cross_entropy(replica(x[rank::ranks]).float(), y[rank::ranks], reduction="sum")
        (ranks * loss / EXAMPLES).backward()  # both DDP and FSDP2 take the mean over ranks
        optimizer.step()
        del loss  # it would keep what the forward pass has saved
        torch.zeros(0)  # one more operation, which sees what is left

# --- 6. The report.
layer, now, peak = 4 * WIDTH * WIDTH, watch.held[-1], max(watch.held)
if gpus:  # where the backward pass runs on a thread of its own
    now, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
calls = Counter(one for one in watch.order if one not in ("mm", "addmm"))
print(
    f"rank {rank} of {ranks} on {device}, {args.how}: {now / layer:.1f} layers between steps, "
    f"{peak / layer:.1f} at the peak;",
    *(f"{n} {call}" for call, n in calls.items()),
    flush=True,
)
whole = [one.full_tensor() if args.how == "fsdp" else one for one in model.parameters()]
if rank == 0:  # full_tensor is a collective: all ranks call it
    print(f"sum of |weights| {sum(one.double().abs().sum().item() for one in whole):.6f}")
    short = {"mm": "m", "addmm": "m", "allgather": "G", "reduce_scatter": "R", "allreduce": "A"}
    print("order:", "".join(short.get(one, "?") for one in watch.order), flush=True)
dist.barrier()  # else a rank that ends first can make another one abort
del replica, optimizer  # before the group: DDP's hooks hold it
dist.destroy_process_group()
