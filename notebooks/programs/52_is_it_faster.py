"""Is it faster? One process against all ranks, timed in turns, and where the time of a step goes.

    torchrun --nproc-per-node=2 52_is_it_faster.py                # =gpu in place of =2: all GPUs
    torchrun --nproc-per-node=2 52_is_it_faster.py wide --scaling=weak
    torchrun --nproc-per-node=2 52_is_it_faster.py wide --parts   # where the time goes
    python 52_is_it_faster.py --parts                             # one process, its parts alone

It needs PyTorch and nothing else.
"""

import argparse
import contextlib
import datetime as dt
import math
import os
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("models", nargs="*", default=["conv", "wide"], help="conv, wide")
parser.add_argument("--batch", type=int, default=64, help="of one process")
parser.add_argument("--scaling", choices=("strong", "weak"), default="strong")
parser.add_argument("--rounds", type=int, default=20, help="fewer than 6 allow no verdict")
parser.add_argument("--steps", type=int, default=4, help="of a call that is timed")
parser.add_argument("--parts", action="store_true", help="show where the time of a step goes")
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
    torch.set_num_threads(1)  # one core stands for a device
own_gpu = device if gpus else None
dist.init_process_group(backend, timeout=dt.timedelta(seconds=60), device_id=own_gpu)
rank, ranks = dist.get_rank(), dist.get_world_size()


# --- 2. Two models: one computes much for each byte of gradients, the other little.
def conv():
    """0.06 million parameters, each used in many places of an image."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def wide():
    """2.9 million parameters, each used once for an image."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10),
    )  # fmt: skip


class Training:
    """A model with its data: a call makes the steps that are timed."""

    def __init__(self, model, batch, *, replicated=False):
        self.model, self.batch, self.made = model, batch, 0
        if replicated:
            more = {"device_ids": [own_gpu]} if gpus else {}
            self.model = DistributedDataParallel(model, **more)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(4096, 1, 28, 28)  # in the memory of the host
        self.labels = torch.randint(10, (4096,))

    def step(self, until="update"):
        """One step, or its beginning, `until` data, forward, backward, all-reduce."""
        first = self.made * self.batch % (4096 - self.batch)
        self.made += 1
        mine = torch.arange(first, first + self.batch)
        x, y = self.images[mine].to(device), self.labels[mine].to(device)
        if until == "data":
            return
        self.optimizer.zero_grad()
        quiet = until in ("forward", "backward") and hasattr(self.model, "no_sync")
        with self.model.no_sync() if quiet else contextlib.nullcontext():
            loss = cross_entropy(self.model(x), y)
            if until != "forward":
                loss.backward()
        if until == "update":
            self.optimizer.step()


# --- 3. The measurement: wait for the device, warm up, take turns.
def seconds_of(work):
    """The seconds of a call on this rank, when all ranks begin together."""
    dist.barrier()
    if gpus:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if gpus:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turns(works, rounds):
    """The seconds of each work, round by round; the order is new in each round."""
    for work in works.values():
        for _ in range(3):  # warm-up: DDP has its final buckets from the second step on
            seconds_of(work)
    draw = random.Random(0)  # the same order on all ranks
    samples = {name: [] for name in works}
    for _ in range(rounds):
        for name in draw.sample([*works], len(works)):
            samples[name].append(seconds_of(works[name]) / args.steps)
    return samples


def interval(values):
    """The 95 % interval of a median: two of the sorted values, for any distribution."""
    n, below, out = len(values), 0.0, 0
    while below + math.comb(n, out) / 2**n <= 0.025:
        below += math.comb(n, out) / 2**n
        out += 1
    ordered = sorted(values)
    return ordered[max(out - 1, 0)], ordered[n - max(out, 1)]


# --- 4. One process against all ranks.
def compare(name):
    """Rank 0 trains alone, then all ranks train; the speed-up is that of images a second."""
    make = {"conv": conv, "wide": wide}[name]
    mine = args.batch if args.scaling == "weak" else args.batch // ranks
    alone = Training(make().to(device), args.batch)
    together = Training(make().to(device), mine, replicated=True)

    def one_process():
        for _ in range(args.steps if rank == 0 else 0):
            alone.step()

    def all_ranks():
        for _ in range(args.steps):
            together.step()

    samples = in_turns(
        {"one process": one_process, f"{ranks} rank" + "s" * (ranks > 1): all_ranks}, args.rounds
    )
    work = mine * ranks / args.batch
    gains = [work * one / other for one, other in zip(*samples.values(), strict=True)]
    low, high = interval(gains)
    word = "faster" if low > 1 else "slower" if high < 1 else "cannot tell"
    if args.rounds < 6:  # no two of so few values hold a median with 95 %
        word = "cannot tell"
    nbytes = sum(one.nbytes for one in alone.model.parameters())
    say(f"{name}: {nbytes / 1e6:.2f} MB of gradients, {args.scaling} scaling")
    for who, its in samples.items():
        say(f"  {who:<12} {1e3 * statistics.median(its):7.2f} ms a step")
    say(f"  speed-up {statistics.median(gains):.2f} ({low:.2f} to {high:.2f}): {word}")


# --- 5. Where the time of a step goes: the step with one part more each time.
def parts(name):
    """The medians of what each part adds to the step."""
    make = {"conv": conv, "wide": wide}[name]
    training = Training(make().to(device), args.batch // ranks, replicated=ranks > 1)
    ends = ["data", "forward", "backward", "all-reduce", "update"]
    if ranks == 1:
        ends.remove("all-reduce")

    def until(end):
        return lambda: [training.step(end) for _ in range(args.steps)]

    works = {end: until(end) for end in ends}
    gradients = torch.zeros(sum(one.numel() for one in training.model.parameters()), device=device)
    works["all-reduce alone"] = lambda: [dist.all_reduce(gradients) for _ in range(args.steps)]
    samples = in_turns(works, args.rounds)
    before = [0.0] * args.rounds
    say(f"{name}: the parts of a step on {ranks} rank{'s' * (ranks > 1)}")
    for end in ends:
        added = statistics.median(a - b for a, b in zip(samples[end], before, strict=True))
        say(f"  {end:<12} {1e3 * added:7.2f} ms")
        before = samples[end]
    alone = statistics.median(samples["all-reduce alone"])
    say(f"  alone, the all-reduce takes {1e3 * alone:.2f} ms")


def say(text):
    """Rank 0 says it."""
    if rank == 0:
        print(text, flush=True)


for each in args.models:
    (parts if args.parts else compare)(each)
dist.barrier()  # else a rank that ends first can make another one abort
dist.destroy_process_group()  # no DDP model is left: it must end before its group
