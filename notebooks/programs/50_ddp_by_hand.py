"""Data-parallel training by hand, and by DistributedDataParallel: the weights of one process.

    python 50_ddp_by_hand.py                        # one process
    torchrun --nproc-per-node=2 50_ddp_by_hand.py   # two; =gpu in place of =2: one for each GPU
    torchrun --nproc-per-node=2 50_ddp_by_hand.py flat buckets ddp --even --width=512 --batch=1024

Name the ways that you want: nothing, each, flat, buckets, ddp. It needs PyTorch and nothing else.
"""

import argparse
import datetime as dt
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("ways", nargs="*", default=["each", "flat", "buckets", "ddp"])
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--depth", type=int, default=9)
parser.add_argument("--batch", type=int, default=48, help="of all ranks together")
parser.add_argument("--steps", type=int, default=9, help="the first three are not timed")
parser.add_argument("--cap", type=float, default=1.0, help="MiB of gradients that fill a bucket")
parser.add_argument("--even", action="store_true", help="equal shares; rank r has r + 1 parts else")
parser.add_argument("--extra", action="store_true", help="a layer that only the last rank uses")
args = parser.parse_args()

# --- 1. Which rank is this, and which device is its own?
if "RANK" not in os.environ:  # started without a launcher: a group of one process
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
if gpus := torch.cuda.device_count():
    device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus), "nccl"
    torch.cuda.set_device(device)
else:
    device, backend = torch.device("cpu"), "gloo"
    torch.set_num_threads(1)  # a core for each rank
torch.set_default_device(device)
own_gpu = device if gpus else None
dist.init_process_group(backend, timeout=dt.timedelta(seconds=60), device_id=own_gpu)
rank, ranks = dist.get_rank(), dist.get_world_size()


# --- 2. A model with all that a synchronisation must respect.
class Net(nn.Module):
    """The last layer has the first one's weight; the second is frozen; `scale` is a buffer."""

    def __init__(self):
        super().__init__()
        sizes = (args.width, args.width)
        self.layers = nn.ModuleList([nn.Linear(*sizes, bias=False) for _ in range(args.depth)])
        self.layers[-1].weight = self.layers[0].weight
        self.layers[1].requires_grad_(False)
        if args.extra:
            self.of_last_rank = nn.Linear(*sizes)
        self.register_buffer("scale", 0.5 + torch.rand(()))

    def forward(self, x, extra=False):
        """The logits."""
        x = self.scale * x
        for layer in self.layers[:-1]:
            x = x + torch.relu(layer(x))
        return self.layers[-1](self.of_last_rank(x) if extra else x)


def trained(model):
    """The parameters that get a gradient; a tied weight comes once."""
    return [one for one in model.parameters() if one.requires_grad]


def shares(step):
    """The examples of each rank in a step, cut from the same batch on all ranks."""
    torch.manual_seed(100 + step)
    x = torch.randn(args.batch, args.width)
    y = torch.randint(args.width, (args.batch,))
    parts = [1 if args.even else one + 1 for one in range(ranks)]
    ends = [args.batch * sum(parts[: one + 1]) // sum(parts) for one in range(ranks - 1)]
    return list(zip(x.tensor_split(ends), y.tensor_split(ends), strict=True))


def loss_of(model, share, whose, total):
    """Of one share, its part of the mean loss over the batch: the ranks add up their parts."""
    x, y = share
    more = {"extra": True} if args.extra and whose == ranks - 1 else {}
    return cross_entropy(model(x, **more), y, reduction="sum") / total


# --- 3. Four ways to add up gradients: each is prepared before training, and called in each step.
def broadcast(model):
    """Give all ranks the parameters and the buffers of rank 0."""
    for one in [*model.parameters(), *model.buffers()]:
        dist.broadcast(one.detach(), src=0)


def fill(model):
    """Zeros where this rank has no gradient, so that all ranks send the same."""
    for one in trained(model):
        if one.grad is None:
            one.grad = torch.zeros_like(one)


def each(model):
    """One all-reduce for each parameter, after the backward pass."""

    def synchronise():
        fill(model)
        for one in trained(model):
            dist.all_reduce(one.grad)

    return synchronise


def flat(model):
    """One all-reduce for all parameters, after the backward pass."""

    def synchronise():
        fill(model)
        send(trained(model))[1].wait()

    return synchronise


# --- 4. All gradients of a bucket leave in one array.
def send(bucket):
    """Begin to add up these gradients, in one array: the array's parts, and the handle."""
    whole = torch.cat([one.grad.flatten() for one in bucket])
    parts = whole.split([one.numel() for one in bucket])
    for one, part in zip(bucket, parts, strict=True):
        one.grad = part.view_as(one)  # the sum arrives where the gradient is
    return whole, dist.all_reduce(whole, async_op=True)


# --- 5. Buckets that are sent while the backward pass computes the other gradients.
class Buckets:
    """Gradients in buckets, from the last parameter to the first."""

    def __init__(self, model, cap):
        self.model, self.buckets = model, [[]]
        for one in reversed(trained(model)):
            self.buckets[-1].append(one)
            if sum(p.nbytes for p in self.buckets[-1]) >= cap:
                self.buckets.append([])
        self.buckets = [bucket for bucket in self.buckets if bucket]
        self.place = {one: n for n, bucket in enumerate(self.buckets) for one in bucket}
        for one in self.place:
            one.register_post_accumulate_grad_hook(self.ready)
        self.begin()

    def begin(self):
        """Nothing is ready, and nothing is sent."""
        self.missing, self.sent = [len(bucket) for bucket in self.buckets], []

    def ready(self, parameter):
        """A gradient is complete: send what is full, in the same order on all ranks."""
        self.missing[self.place[parameter]] -= 1
        while len(self.sent) < len(self.buckets) and self.missing[len(self.sent)] == 0:
            self.sent.append(send(self.buckets[len(self.sent)]))

    def finish(self):
        """After the backward pass: send what is left, and wait for all handles."""
        fill(self.model)
        while len(self.sent) < len(self.buckets):
            self.sent.append(send(self.buckets[len(self.sent)]))
        for _, handle in self.sent:
            handle.wait()
        self.begin()


# --- 6. The loop is the same for all ways.
def train(way):
    """Train, and give the seconds of each step with the weights after it."""
    torch.manual_seed(rank)  # every rank makes weights of its own
    model, factor = Net(), 1
    replica, synchronise = model, lambda: None
    if way == "ddp":  # it broadcasts, and *averages* gradients
        factor, more = ranks, {"device_ids": [own_gpu]} if gpus else {}
        unused = {"find_unused_parameters": args.extra, "bucket_cap_mb": args.cap}
        replica = DistributedDataParallel(model, **unused, **more)
    else:
        broadcast(model)
    if way in ("each", "flat"):
        synchronise = {"each": each, "flat": flat}[way](model)
    elif way == "buckets":
        synchronise = Buckets(model, args.cap * 2**20).finish
    optimizer = torch.optim.SGD(trained(model), lr=0.1)
    for step in range(args.steps):
        mine = shares(step)[rank]
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        (factor * loss_of(replica, mine, rank, args.batch)).backward()
        synchronise()
        optimizer.step()
        if gpus:
            torch.cuda.synchronize()
        yield time.perf_counter() - start, [one.detach() for one in trained(model)]


def one_process():
    """The same training on all shares, in this process alone."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(trained(model), lr=0.1)
    for step in range(args.steps):
        optimizer.zero_grad()
        parts = enumerate(shares(step))
        sum(loss_of(model, part, whose, args.batch) for whose, part in parts).backward()
        optimizer.step()
    return [one.detach() for one in trained(model)]


# --- 7. Run all ways, and compare each with one process.
right = one_process()
if rank == 0:
    megabytes = sum(one.nbytes for one in right) / 1e6
    print(f"{ranks} ranks on {device.type}, {megabytes:.2f} MB of gradients in {len(right)} arrays")
# The ways take turns, step by step: what else runs on the machine disturbs all alike.
steps = list(zip(*map(train, args.ways), strict=False))
for way, found in zip(args.ways, zip(*steps, strict=True), strict=True):
    took = min(seconds for seconds, _ in found[3:] or found)
    weights = found[-1][1]
    far = max((a - b).abs().max() for a, b in zip(weights, right, strict=True))
    worst = torch.tensor([took, far.item()])
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{way:<8} {worst[0]:.4f} s a step, at most {worst[1]:.0e} from one process")

dist.barrier()  # else a rank that ends first can make another one abort
dist.destroy_process_group()  # no DDP model is left: it must end before its group
