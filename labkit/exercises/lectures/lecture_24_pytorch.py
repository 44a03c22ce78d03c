"""The tasks of lecture 24: PyTorch."""

import random
from itertools import product

from labkit.exercises.judges import torch_training as trained
from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.task import Task

MIB = 2**20
NEIGHBOURS = "These are neighbours: take every element from rank on, in steps of ranks."


def _permutation(length: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(length), length)


LINEAR = [
    (f"{n}.{part}", size) for n in range(12) for part, size in (("weight", 4 * MIB), ("bias", 4096))
]
SMALL = [(f"layer{n}", 4 * size) for n, size in enumerate((1000, 5, 3000, 100, 262_144, 9))]
SHARDS = [
    (length, ranks, rank, 7, epoch, _permutation, drop_last)
    for (length, ranks), drop_last, epoch in product(
        ((23, 4), (12, 3), (10, 4), (2, 5), (103, 8)), (False, True), (0, 1)
    )
    for rank in range(ranks)
]
TASKS = {
    "24.sent": Task(
        "A model has 14 GB of weights (7 billion parameters in bfloat16), and its gradients have "
        "as many bytes. How many GB does each of 8 ranks send in a step of FSDP2, with the "
        "weights gathered twice?",
        number(36.75, "GB", within=0.001),
        (
            "Each of the all-gathers and the reduce-scatter sends (N - 1) / N of the bytes.",
            "Two all-gathers and one reduce-scatter.",
        ),
        "answer = 3 * 14 * 7 / 8",
        "DDP sends 2 (N - 1) / N: 24.5 GB, and keeps eight times as much.",
        slips={24.5: "That is DDP.", 28: "Each rank sends 7/8."},
    ),
    "24.buckets": function_task(
        "Write my_buckets(parameters, first, cap): the names in each of DDP's buckets, as a list "
        "of lists. parameters is a list of (name, bytes) in the order of model.parameters(). A "
        "bucket is closed as soon as it holds its limit or more: first for bucket 0, cap for "
        "all others. The last one may hold less.",
        [
            *((SMALL, 1000, 5000), (LINEAR, MIB, 25 * MIB)),
            *((LINEAR, 4 * MIB, 4 * MIB), (SMALL, 36, 10**9)),
        ],
        (
            "The last parameter comes first: reversed(parameters).",
            "The limit is `first` while there is one bucket, and `cap` from then on.",
            "Return no empty bucket when the last parameter closes one.",
        ),
        """
def my_buckets(parameters, first, cap):
    buckets, size = [[]], 0
    for name, nbytes in reversed(parameters):
        buckets[-1].append(name)
        size += nbytes
        if size >= (first if len(buckets) == 1 else cap):
            buckets.append([])
            size = 0
    return [bucket for bucket in buckets if bucket]
""",
        "Torch 2.13 has printed the same buckets above.",
        slips=[
            ("reversed(parameters)", "parameters", "The last parameter's gradient is ready first."),
            ("(first if len(buckets) == 1 else cap)", "cap", "Bucket 0 has the limit first."),
        ],
        difficulty=2,
    ),
    "24.sampler": function_task(
        "Write my_indices(length, ranks, rank, seed, epoch, permutation, drop_last): the list of "
        "indices that DistributedSampler gives to a rank. permutation(length, seed) is a shuffled "
        "list, and the sampler's seed for it is seed + epoch. Without drop_last the list is padded "
        "from its own beginning until its length is a multiple of ranks, with drop_last it is cut. "
        "Rank r takes every element from r on, in steps of ranks.",
        SHARDS,
        (
            "Padding: order * 2 is twice the list, of which you need the first n elements.",
            "n = math.ceil(length / ranks) * ranks, or length // ranks * ranks with drop_last.",
            "With fewer examples than ranks the list is repeated more than once.",
        ),
        """
import math

def my_indices(length, ranks, rank, seed, epoch, permutation, drop_last):
    order = list(permutation(length, seed + epoch))
    if drop_last:
        order = order[: length // ranks * ranks]
    else:
        padded = math.ceil(length / ranks) * ranks
        order = (order * math.ceil(padded / length))[:padded]
    return order[rank::ranks]
""",
        "All ranks compute the same permutation, and send nothing for it.",
        slips=[
            ("seed + epoch", "seed", "The order must change with the epoch."),
            ("[rank::ranks]", "[rank * len(order) // ranks :][: len(order) // ranks]", NEIGHBOURS),
        ],
        difficulty=2,
    ),
    "24.ddp": Task(
        "Write my_training(model, images, labels): train with DDP. The process group exists. "
        "images has the shape (steps, batch, inputs). In each step, rank r takes every example "
        "from r on, in steps of the number of ranks. SGD with learning rate 0.5, mean cross "
        "entropy. The weights of rank 0 are the right ones at the start.",
        trained.same_weights(trained.ddp_rank),
        (
            "DistributedDataParallel(model) sends the weights of rank 0 to all.",
            "Call the replica, not the model: only then are the gradients averaged.",
            "x[rank::ranks] and y[rank::ranks] are this rank's examples.",
        ),
        """
def my_training(model, images, labels):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, ranks = dist.get_rank(), dist.get_world_size()
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.5)
    for x, y in zip(images, labels):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(replica(x[rank::ranks]), y[rank::ranks])
        loss.backward()
        optimizer.step()
""",
        "Equal shards, so that the mean of the ranks' means is the mean over the batch.",
        difficulty=2,
        environment="torch",
    ),
    "24.fully_shard": Task(
        "Write my_training(model, mesh, images, labels): the same training with FSDP2. Shard each "
        "Linear layer of model, a Sequential, and then the model itself, over the mesh.",
        trained.same_weights(trained.sharded_rank),
        (
            "for layer in model: if isinstance(layer, torch.nn.Linear): fully_shard(...)",
            "fully_shard(layer, mesh=mesh) changes the layer in place.",
            "Make the optimizer after it: the model has other parameters then.",
        ),
        """
def my_training(model, mesh, images, labels):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for x, y in zip(images, labels):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[rank::ranks]), y[rank::ranks])
        loss.backward()
        optimizer.step()
""",
        "The loop is that of one process. What changes is what a rank keeps.",
        difficulty=2,
        environment="torch",
    ),
    "24.split": Task(
        "Write my_step(rank, part, optimizer, x, y): one step of a model that is split over two "
        "ranks. part is this rank's half of the layers. Rank 0 has the examples x, and its half "
        "makes 8 activations of each; rank 1 has the labels y. Mean cross entropy.",
        trained.same_weights(trained.split_rank),
        (
            "Rank 0 sends h.detach(), and receives a tensor of the same shape: the gradient of h.",
            "h.backward(gradient) goes on with the backward pass on rank 0.",
            "Rank 1 receives into torch.empty(len(y), 8), and calls requires_grad_() on it.",
        ),
        """
def my_step(rank, part, optimizer, x, y):
    import torch
    import torch.distributed as dist

    optimizer.zero_grad()
    if rank == 0:
        h = part(x)
        dist.send(h.detach(), dst=1)
        gradient = torch.empty_like(h)
        dist.recv(gradient, src=1)
        h.backward(gradient)
    else:
        h = torch.empty(len(y), 8)
        dist.recv(h, src=0)
        h.requires_grad_()
        torch.nn.functional.cross_entropy(part(h), y).backward()
        dist.send(h.grad, dst=0)
    optimizer.step()
""",
        "A pipeline (lecture 18) is this step with micro-batches.",
        difficulty=3,
        environment="torch",
    ),
}
