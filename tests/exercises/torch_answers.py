"""Right programs in PyTorch, and mistakes: changes (old, new) of them, by the key of the sentence."""

import re

from labkit.exercises import tasks
from tests.exercises import torch_hook_answers

DDP = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches):
    for one in [*model.parameters(), *model.buffers()]:
        dist.broadcast(one.data, 0)
    handles = []

    def send(parameter):
        parameter.grad.mul_(weight)
        handles.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(send)
    for x, y, total in batches:
        weight = len(x) / total
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        while handles:
            handles.pop().wait()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data -= 0.125 * parameter.grad
"""
FLAT = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches):
    for one in [*model.parameters(), *model.buffers()]:
        dist.broadcast(one.data, 0)
    wanted = [one for one in reversed(list(model.parameters())) if one.requires_grad]
    buckets = [wanted[:2], wanted[2:]]

    def make(bucket):
        ready = []

        def hook(parameter):
            ready.append(parameter)
            if len(ready) == len(bucket):
                flat = torch.cat([one.grad.flatten() for one in bucket]) * weight
                sent.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
                ready.clear()

        return hook

    for bucket in buckets:
        hook = make(bucket)
        for one in bucket:
            one.register_post_accumulate_grad_hook(hook)
    for x, y, total in batches:
        weight, sent = len(x) / total, []
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        for bucket, flat, handle in sent:
            handle.wait()
            for one, new in zip(bucket, flat.split([one.numel() for one in bucket])):
                one.data -= 0.125 * new.view(one.shape)
"""
LIBRARY = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

def my_training(model, batches):
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.125)
    for x, y, total in batches:
        optimizer.zero_grad()
        scale = dist.get_world_size() * len(x) / total
        (scale * cross_entropy(replica(x), y)).backward()
        optimizer.step()
"""
BLOCKING = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches):
    for one in model.state_dict().values():
        dist.broadcast(one, 0)
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.125)
    for x, y, total in batches:
        optimizer.zero_grad(set_to_none=False)
        (cross_entropy(model(x), y, reduction="sum") / total).backward()
        for one in model.parameters():
            if one.requires_grad:
                dist.all_reduce(one.grad)
        optimizer.step()
"""
ZEROS = BLOCKING.replace(
    "                dist.all_reduce(one.grad)\n",
    "                one.grad = torch.zeros_like(one) if one.grad is None else one.grad\n"
    "                dist.all_reduce(one.grad)\n",
)
UNUSED = LIBRARY.replace("Parallel(model)", "Parallel(model, find_unused_parameters=True)")
ACCUMULATED = """
import contextlib
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

def my_training(model, batches, parts):
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.125)
    for x, y, total in batches:
        optimizer.zero_grad()
        xs, ys = x.chunk(parts), y.chunk(parts)
        for number, (a, b) in enumerate(zip(xs, ys)):
            last = number == len(xs) - 1
            with contextlib.nullcontext() if last else replica.no_sync():
                loss = cross_entropy(replica(a), b, reduction="sum")
                (dist.get_world_size() * loss / total).backward()
        optimizer.step()
"""
CLIPPED = BLOCKING.replace("batches)", "batches, limit)").replace(
    "        optimizer.step()\n",
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n        optimizer.step()\n",
)
JOINED = (
    LIBRARY.replace(
        "from torch.nn.functional",
        "from torch.distributed.algorithms.join import Join\nfrom torch.nn.functional",
    ).replace("    for x, y, total in batches:", "    for x, y, total in joined(replica, batches):")
    + """
def joined(replica, batches):
    with Join([replica]):
        yield from batches
"""
)
COUNTED = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches):
    for one in [*model.parameters(), *model.buffers()]:
        dist.broadcast(one.detach(), src=0)
    most = torch.tensor(len(batches))
    dist.all_reduce(most, dist.ReduceOp.MAX)
    mine, weights = list(batches), [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.125)
    for step in range(int(most)):
        for one in weights:
            one.grad = torch.zeros_like(one)
        if step < len(mine):
            x, y, total = mine[step]
            (cross_entropy(model(x), y, reduction="sum") / total).backward()
        for one in weights:
            dist.all_reduce(one.grad)
        optimizer.step()
"""
SAMPLED = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

def my_training(model, dataset, epochs, batch_size):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.125)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(replica(x), y).backward()
            optimizer.step()
"""
METRICS = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_metrics(model, batches):
    found = torch.zeros(3)
    with torch.no_grad():
        for x, y, total in batches:
            logits = model(x)
            found[0] += cross_entropy(logits, y, reduction="sum")
            found[1] += (logits.argmax(1) == y).sum()
            found[2] += len(x)
    dist.all_reduce(found)
    return found[0] / found[2], found[1] / found[2]
"""
ZERO = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches, make_optimizer):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weights = list(model.parameters())
    mine = [one for number, one in enumerate(weights) if number % ranks == rank]
    optimizer = make_optimizer(mine)
    for x, y, total in batches:
        model.zero_grad()
        (cross_entropy(model(x), y, reduction="sum") / total).backward()
        for one in weights:
            dist.all_reduce(one.grad)
        optimizer.step()
        for number, one in enumerate(weights):
            dist.broadcast(one.data, number % ranks)
"""
OWNED = ZERO.replace("for one in weights:\n", "for number, one in enumerate(weights):\n").replace(
    "dist.all_reduce(one.grad)", "dist.reduce(one.grad, number % ranks)"
)
ZERO_FLAT = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches, make_optimizer):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weights = list(model.parameters())
    sizes = [one.numel() for one in weights]
    length = -(-sum(sizes) // ranks)

    def flat(parts):
        whole = torch.cat([one.detach().flatten() for one in parts])
        return torch.cat([whole, whole.new_zeros(length * ranks - len(whole))])

    shard = torch.nn.Parameter(flat(weights).chunk(ranks)[rank].clone())
    optimizer = make_optimizer([shard])
    for x, y, total in batches:
        model.zero_grad()
        (cross_entropy(model(x), y, reduction="sum") / total).backward()
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter_single(shard.grad, flat([one.grad for one in weights]))
        optimizer.step()
        whole = torch.empty(length * ranks)
        dist.all_gather_single(whole, shard.detach())
        for one, new in zip(weights, whole.split([*sizes, len(whole) - sum(sizes)])):
            one.data.copy_(new.view(one.shape))
        del whole, new  # a name that stays keeps a whole model
"""
ZERO_CHUNKS = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches, make_optimizer):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    params = list(model.parameters())
    def padded(one):
        return torch.nn.functional.pad(one.flatten(), (0, -one.numel() % ranks))

    shards = [torch.nn.Parameter(padded(p.detach()).chunk(ranks)[rank].clone()) for p in params]
    opt = make_optimizer(shards)
    for x, y, total in batches:
        model.zero_grad()
        (cross_entropy(model(x), y, reduction="sum") / total).backward()
        for p, s in zip(params, shards):
            s.grad = torch.empty_like(s)
            dist.reduce_scatter_tensor(s.grad, padded(p.grad))
        opt.step()
        with torch.no_grad():
            for p, s in zip(params, shards):
                whole = torch.empty(s.numel() * ranks)
                dist.all_gather_into_tensor(whole, s)
                p.copy_(whole[: p.numel()].view_as(p))
"""
ZERO_LIBRARY = """
import functools
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

def my_training(model, batches, make_optimizer):
    class Made(torch.optim.Optimizer):
        def __new__(cls, parameters, **_):
            return make_optimizer(parameters)

    replica = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(replica.parameters(), Made)
    for x, y, total in batches:
        optimizer.zero_grad()
        scale = dist.get_world_size() / total
        (scale * cross_entropy(replica(x), y, reduction="sum")).backward()
        optimizer.step()
"""
FSDP = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def gathered(shard, shape):
    whole = torch.empty(shard.numel() * dist.get_world_size())
    dist.all_gather_single(whole, shard)
    return whole[: shape.numel()].view(shape)

class Sharded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, shape):
        ctx.save_for_backward(x, shard)
        ctx.shape = shape
        return x @ gathered(shard.detach(), shape).T

    @staticmethod
    def backward(ctx, dy):
        x, shard = ctx.saved_tensors
        dx = dy @ gathered(shard.detach(), ctx.shape)
        whole = torch.zeros(shard.numel() * dist.get_world_size())
        whole[: ctx.shape.numel()] = (dy.T @ x).flatten()
        mine = torch.empty_like(shard)
        dist.reduce_scatter_single(mine, whole)
        return dx, mine, None

def my_training(weights, batches):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shards, shapes = [], []
    for whole in weights:
        length = -(-whole.numel() // ranks)
        mine = torch.zeros(length)
        part = whole.flatten()[rank * length : (rank + 1) * length]
        mine[: len(part)] = part
        shards.append(torch.nn.Parameter(mine))
        shapes.append(whole.shape)
    del whole, part  # a view of the last whole weight keeps it alive
    optimizer = torch.optim.SGD(shards, lr=0.125)
    for x, y, total in batches:
        optimizer.zero_grad()
        h = x
        for shard, shape in zip(shards, shapes):
            h = torch.relu(Sharded.apply(h, shard, shape))
        (cross_entropy(h, y, reduction="sum") / total).backward()
        optimizer.step()
    return save(shards, shapes, rank)

def save(shards, shapes, rank):
    whole = [gathered(shard.detach(), shape) for shard, shape in zip(shards, shapes)]
    return whole if rank == 0 else None
"""
FSDP_LIBRARY = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

def my_training(weights, batches):
    layers = []
    for one in weights:
        layer = nn.Linear(*reversed(one.shape), bias=False)
        layer.weight.data.copy_(one)
        layers += [layer, nn.ReLU()]
        fully_shard(layer)
    del one
    model = nn.Sequential(*layers)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    for x, y, total in batches:
        optimizer.zero_grad()
        scale = dist.get_world_size() / total
        (scale * cross_entropy(model(x), y, reduction="sum")).backward()
        optimizer.step()
    return [one.full_tensor() for one in model.parameters()]
"""
REPLICATED = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(weights, batches):
    whole = [torch.nn.Parameter(one) for one in weights]
    optimizer = torch.optim.SGD(whole, lr=0.125)
    for x, y, total in batches:
        optimizer.zero_grad()
        h = x
        for one in whole:
            h = torch.relu(h @ one.T)
        (cross_entropy(h, y, reduction="sum") / total).backward()
        for one in whole:
            dist.all_reduce(one.grad)
        optimizer.step()
    return [one.detach() for one in whole]
"""
BY_STEPS = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, dataset, folder, after_step, epochs, batch):
    rank, ranks, (images, labels) = dist.get_rank(), dist.get_world_size(), dataset.tensors
    momenta, done = {n: torch.zeros_like(one) for n, one in model.named_parameters()}, 0
    for file in sorted(folder.glob("step*.pt"), key=lambda one: int(one.stem[4:]), reverse=True):
        try:
            state = torch.load(file)
        except Exception:  # half of it
            continue
        model.load_state_dict(state["model"])
        momenta, done = state["momenta"], state["done"]
        break
    for one in model.parameters():
        dist.broadcast(one.detach(), 0)
    steps = len(dataset) // batch
    while done < epochs * steps:
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(done // steps))
        mine = order[done % steps * batch :][:batch].chunk(ranks)[rank]
        model.zero_grad()
        (cross_entropy(model(images[mine]), labels[mine], reduction="sum") / batch).backward()
        for n, one in model.named_parameters():
            dist.all_reduce(one.grad)
            momenta[n] = 0.9 * momenta[n] + one.grad
            one.data -= 0.125 * momenta[n]
        done += 1
        if rank == ranks - 1:
            state = {"model": model.state_dict(), "momenta": momenta, "done": done}
            torch.save(state, folder / f"step{done}.pt")
        after_step(done)
    return model
"""
SNAPSHOT, CHECKPOINT = tasks()["53.resume"].solution, tasks()["53.sharded"].solution
BROADCAST = SNAPSHOT.replace(
    "    if file.exists():\n        state = torch.load(file)\n",
    "    box = [torch.load(file) if rank == 0 and file.exists() else None]\n"
    "    dist.broadcast_object_list(box, src=0)\n"
    "    if state := box[0]:\n",
)
HALF = SNAPSHOT.replace("done}, part)", "done}, file)").replace("part.rename(file)", "pass")
ONE_FILE = (
    CHECKPOINT.replace(
        "get_state_dict(model, optimizer)", "get_state_dict(model, optimizer, options=full)"
    )
    .replace(
        "    def everything",
        "    full = StateDictOptions(full_state_dict=True)\n\n    def everything",
    )
    .replace("import get_state_dict", "import StateDictOptions, get_state_dict")
    .replace('whole := sorted(folder.glob("*/.metadata"))', '(file := folder / "s.pt").exists()')
    .replace("dcp.load(state, checkpoint_id=whole[-1].parent)", "state = torch.load(file)")
    .replace('state["optimizer"])', 'state["optimizer"], options=full)')
    .replace(
        "dcp.save(everything(done), ", "state = everything(done); rank or torch.save(state, file)#"
    )
)
RIGHT = {
    "torch_ddp()": (DDP, FLAT, LIBRARY, BLOCKING),
    "torch_ddp(overlap=True)": (DDP, FLAT, LIBRARY),
    "torch_ddp(most=2)": (FLAT, LIBRARY),
    "torch_ddp(parts=2)": (ACCUMULATED,),
    "torch_ddp(clip=0.05)": (CLIPPED,),
    "torch_ddp(uneven=True)": (
        JOINED,
        JOINED.replace("DataParallel(model)", "DataParallel(model, find_unused_parameters=True)"),
        COUNTED,
    ),
    "torch_ddp(unused=True)": (ZEROS, UNUSED),
    "torch_sampler()": (SAMPLED,),
    "torch_metrics()": (METRICS,),
    "torch_zero_1()": (ZERO, OWNED, ZERO_FLAT, ZERO_CHUNKS, ZERO_LIBRARY),
    "torch_zero_1(flat=True)": (ZERO_FLAT,),
    "torch_fsdp()": (FSDP, FSDP_LIBRARY),
    **torch_hook_answers.RIGHT,
    "torch_resume()": (BY_STEPS, BROADCAST),
    "torch_resume(shards=True)": (CHECKPOINT,),
}
SEND = "        parameter.grad.mul_(weight)\n"
REDUCE = "handles.append(dist.all_reduce(parameter.grad, async_op=True))"
STATE = "[one for number, one in enumerate(weights) if number % ranks == rank]"
ALL = "[*model.parameters(), *model.buffers()]"
WAIT = "        while handles:\n            handles.pop().wait()\n"
AFTER = DDP.replace("parameter.register_post_accumulate_grad_hook(send)", "pass").replace(
    WAIT, "        for parameter in model.parameters():\n            if parameter.grad is not None:\n"
    "                send(parameter)\n" + WAIT)  # fmt: skip
UNSCALED = DDP.replace(SEND, "")
OWN = CLIPPED.replace(
    "        for one in model.parameters():\n",
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n"
    "        for one in model.parameters():\n",
    1,
).replace(
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n        optimizer",
    "        optimizer",
)
BEFORE = ZERO_FLAT.replace("        optimizer.step()\n", "").replace(
    "        del whole, new", "        optimizer.step()\n        del whole, new"
)
WRONG = [
    ("torch_ddp()", "broadcast", DDP, ALL, "model.buffers()"),
    ("torch_ddp()", "buffers", DDP, ALL, "model.parameters()"),
    ("torch_ddp()", "frozen", DDP, ALL, "[*(one for one in model.parameters() if one.requires_grad), *model.buffers()]"),
    ("torch_ddp()", "frozen", DDP, "    handles = []\n", "    model.requires_grad_()\n    handles = []\n"),
    ("torch_ddp()", "mean", DDP, "len(x) / total", "1 / dist.get_world_size()"),
    ("torch_ddp()", "mean", DDP, SEND, ""),
    ("torch_ddp()", "not divided", DDP, "mul_(weight)", "mul_(weight * dist.get_world_size())"),
    ("torch_ddp()", "twice", DDP, "len(x) / total", "len(x) / total / dist.get_world_size()"),
    ("torch_ddp()", "sum", DDP, "cross_entropy(model(x), y)", "(total * cross_entropy(model(x), y))"),
    ("torch_ddp()", "up", DDP, "-= 0.125", "+= 0.125"),
    ("torch_ddp()", "factor", DDP, "-= 0.125", "-= 0.3"),
    ("torch_ddp()", "none", DDP, "-= 0.125", "-= 0.0"),
    ("torch_ddp()", "zero", FLAT, "        model.zero_grad()\n", ""),
    ("torch_ddp()", "zero", DDP, "        model.zero_grad()\n", ""),
    ("torch_ddp()", "momentum", LIBRARY, "lr=0.125", "lr=0.125, momentum=0.9"),
    ("torch_ddp()", "softmax", LIBRARY, "replica(x)", "replica(x).softmax(1)"),
    ("torch_ddp()", "local", DDP, REDUCE, "pass"),
    ("torch_ddp()", "local", LIBRARY, "replica(x)", "model(x)"),
    ("torch_ddp()", "still", FLAT, "for bucket in buckets:\n        hook", "for bucket in buckets[1:]:\n        hook"),
    ("torch_ddp()", "bucket", DDP, "if parameter.requires_grad:", "if parameter.requires_grad and parameter is not model.middle.bias:"),
    ("torch_ddp()", "hook", DDP, "if parameter.requires_grad:", "if True:"),
    ("torch_ddp()", "flight", DDP, "for parameter in model.parameters():\n        if", "for _, parameter in model.named_parameters(remove_duplicate=False):\n        if"),
    ("torch_ddp()", "tied", BLOCKING, "for one in model.parameters():", "for _, one in model.named_parameters(remove_duplicate=False):"),
    ("torch_ddp()", "handle", DDP, "handles.pop().wait()", "handles.clear()"),
    ("torch_ddp()", "handle", DDP, WAIT, "        for handle in handles[1:]:\n            handle.wait()\n        handles.clear()\n"),
    ("torch_ddp()", "early", DDP.replace(WAIT, "") + WAIT, "", ""),
    ("torch_ddp()", "stuck", DDP, REDUCE, f"{REDUCE} if dist.get_rank() else None"),
    ("torch_ddp()", "idle", DDP, "for x, y, total in batches:", "for x, y, total in []:"),
    ("torch_ddp()", "few", DDP, "in batches:", "in list(batches)[:2]:"),
    ("torch_ddp()", "few", DDP, "in batches:", "in [*batches, *batches]:"),
    ("torch_ddp()", "empty", BLOCKING, "if one.requires_grad:", "if True:"),
    ("torch_ddp()", "mean", DDP, "len(x) / total", "1 / total"),
    ("torch_ddp(overlap=True)", "blocks", DDP, REDUCE, f"{REDUCE}\n        handles[-1].wait()"),
    ("torch_ddp()", "raised", DDP, "model.zero_grad()", "model.zero_gard()"),
    ("torch_ddp(overlap=True)", "late", AFTER, "", ""),
    ("torch_ddp(overlap=True)", "blocks", DDP, REDUCE, "dist.all_reduce(parameter.grad)"),
    ("torch_ddp(most=2)", "calls", DDP, "", ""),
    ("torch_ddp(parts=2)", "bytes", ACCUMULATED, "if last else", "if True else"),
    ("torch_ddp(parts=2)", "local", ACCUMULATED, "contextlib.nullcontext() if last else ", ""),
    ("torch_ddp(parts=2)", "parts", ACCUMULATED.replace(".chunk(parts)", ".chunk(1)"), "", ""),
    ("torch_ddp(parts=2)", "each part", ACCUMULATED, "        optimizer.step()", "            optimizer.step()"),
    ("torch_ddp(parts=2)", "activations", ACCUMULATED.replace(".backward()\n        optimizer", "\n        every.backward()\n        optimizer").replace("optimizer.zero_grad()", "optimizer.zero_grad()\n        every = 0.0"), "                (dist", "            every += (dist"),
    ("torch_ddp(clip=0.05)", "clipped early", OWN, "", ""),
    ("torch_ddp(clip=0.05)", "unclipped", CLIPPED, "parameters(), limit)", "parameters(), 1e9)"),
    ("torch_ddp(clip=0.05)", "clipped apart", CLIPPED, "torch.nn.utils.clip_grad_norm_(model.parameters(), limit)", "[torch.nn.utils.clip_grad_norm_(one, limit) for one in model.parameters()]"),
    ("torch_ddp(uneven=True)", "stuck", JOINED, "    with Join([replica]):\n        yield from", "    yield from"),
    ("torch_ddp(uneven=True)", "not divided", JOINED, "[replica]", "[replica], divide_by_initial_world_size=False"),
    ("torch_ddp(uneven=True)", "twice", JOINED, "dist.get_world_size() * ", ""),
    ("torch_ddp(uneven=True)", "few", COUNTED, "ReduceOp.MAX", "ReduceOp.MIN"),
    ("torch_ddp(uneven=True)", "apart", COUNTED, "        optimizer.step()", "        if step < len(mine):\n            optimizer.step()"),
    ("torch_ddp(unused=True)", "empty", BLOCKING, "zero_grad(set_to_none=False)", "zero_grad()"),
    ("torch_ddp(unused=True)", "stuck", BLOCKING, "if one.requires_grad:", "if one.grad is not None:"),
    ("torch_ddp(unused=True)", "raised", LIBRARY, "", ""),
    ("torch_ddp(unused=True)", "apart", ZEROS, "if one.requires_grad:", "if one.requires_grad and one is not model.expert:"),
    ("torch_sampler()", "epoch", SAMPLED, "        sampler.set_epoch(epoch)\n", ""),
    ("torch_sampler()", "batch", SAMPLED, "dataset, batch_size,", "dataset, batch_size // dist.get_world_size(),"),
    ("torch_sampler()", "same", SAMPLED, "sampler=sampler", "shuffle=False"),
    ("torch_sampler()", "missed", SAMPLED, "DistributedSampler(dataset)", "DistributedSampler(dataset, drop_last=True)"),
    ("torch_metrics()", "mean", METRICS, "    dist.all_reduce(found)\n    return found[0] / found[2], found[1] / found[2]\n", "    found = found[:2] / found[2]\n    dist.all_reduce(found)\n    return found / dist.get_world_size()\n"),
    ("torch_metrics()", "own", METRICS, "    dist.all_reduce(found)\n", ""),
    ("torch_metrics()", "returned", METRICS, "found[1] / found[2]", "found[1]"),
    ("torch_zero_1()", "state", ZERO, STATE, "weights"),
    ("torch_zero_1()", "held", ZERO_FLAT, "        del whole, new  # a name that stays keeps a whole model\n", ""),
    ("torch_zero_1()", "apart", ZERO, "            dist.broadcast(one.data, number % ranks)", "            pass"),
    ("torch_zero_1()", "zero", ZERO, "        model.zero_grad()\n", ""),
    ("torch_zero_1()", "zero", OWNED, "model.zero_grad()", "optimizer.zero_grad()"),
    ("torch_zero_1()", "lost", ZERO, "        optimizer.step()", "        optimizer = make_optimizer(mine)\n        optimizer.step()"),
    ("torch_zero_1()", "still", ZERO, "dist.broadcast(one.data, number % ranks)", "dist.broadcast(one.data, 0)"),
    ("torch_zero_1()", "local", ZERO, "            dist.all_reduce(one.grad)", "            pass"),
    ("torch_zero_1()", "local", ZERO_FLAT, "dist.reduce_scatter_single(shard.grad, flat([one.grad for one in weights]))", "shard.grad.copy_(flat([one.grad for one in weights]).chunk(ranks)[rank])"),
    ("torch_zero_1()", "not divided", ZERO, "/ total)", "/ total * ranks)"),
    ("torch_zero_1()", "none", ZERO_FLAT, "optimizer.step()", "pass"),
    ("torch_zero_1(flat=True)", "unchanged", BEFORE, "", ""),
    ("torch_zero_1(flat=True)", "calls", ZERO_CHUNKS, "", ""),
    ("torch_zero_1(flat=True)", "whole gradients", ZERO, "", ""),
    ("torch_zero_1(flat=True)", "whole gradients", ZERO_LIBRARY, "", ""),
    ("torch_fsdp()", "held", REPLICATED, "", ""),
    ("torch_fsdp()", "one unit", FSDP_LIBRARY, "        fully_shard(layer)\n", ""),
    ("torch_fsdp()", "gathered", FSDP_LIBRARY, "    fully_shard(model)\n", ""),
    ("torch_fsdp()", "none", FSDP, "        optimizer.step()\n", ""),
    ("torch_fsdp()", "order", FSDP_LIBRARY, "        fully_shard(layer)\n    del one\n    model = nn.Sequential(*layers)\n    fully_shard(model)\n", "    del one\n    model = nn.Sequential(*layers)\n    for one in [model, *layers[::2]]:\n        fully_shard(one)\n"),
    ("torch_fsdp()", "gathered", FSDP, "ctx.save_for_backward(x, shard)", "ctx.save_for_backward(x, shard); ctx.whole = gathered(shard.detach(), shape)"),
    ("torch_fsdp()", "whole gradients", FSDP, "dist.reduce_scatter_single(mine, whole)", "dist.all_reduce(whole); mine.copy_(whole.chunk(dist.get_world_size())[dist.get_rank()])"),
    ("torch_fsdp()", "stuck", FSDP, "    whole = [gathered(", "    if rank:\n        return {}\n    whole = [gathered("),
    ("torch_fsdp()", "later", FSDP, "        optimizer.zero_grad()\n", ""),
    ("torch_fsdp()", "not divided", FSDP, "/ total)", "/ total * ranks)"),
    ("torch_fsdp()", "local", FSDP, "dist.reduce_scatter_single(mine, whole)", "mine.copy_(whole.chunk(dist.get_world_size())[dist.get_rank()])"),
    ("torch_fsdp()", "returned", FSDP, "return whole if rank == 0 else None", "return shards if rank == 0 else None"),
    *torch_hook_answers.WRONG,
    ("torch_resume()", "restored", SNAPSHOT, "if rank == 0:", "if False:"),
    ("torch_resume()", "torn", HALF, "", ""),
    ("torch_resume()", "torn", HALF, "if file.exists():", "if file.exists() and ranks < 4:"),
    ("torch_resume()", "older", SNAPSHOT, "if rank == 0:", "if rank == 0 and done % 3 == 0:"),
    ("torch_resume()", "alone", SNAPSHOT, "if file.exists():", "if rank == 0 and file.exists():"),
    ("torch_resume()", "ahead", SNAPSHOT, '"done": done}', '"done": done + 1}'),
    ("torch_resume()", "plain", SNAPSHOT, ", momentum=0.9", ""),
    ("torch_resume()", "again", SNAPSHOT, 'done = state["done"]', 'done = state["done"] // 3 * 3'),
    ("torch_resume()", "another order", SNAPSHOT, "seed=1", "seed=ranks"),
    ("torch_resume()", "epoch", SNAPSHOT, "        sampler.set_epoch(epoch)\n", ""),
    ("torch_resume()", "global batch", SNAPSHOT, "batch // ranks", "6"),
    ("torch_resume()", "optimizer", SNAPSHOT, "optimizer.load", "rank or optimizer.load"),
    ("torch_resume()", "optimizer", BY_STEPS, 'momenta, done = state["momenta"], state["done"]', 'done = state["done"]'),
    ("torch_resume()", "one file", SNAPSHOT, "if rank == 0:", "if True:"),
    ("torch_resume()", "said", SNAPSHOT, "            after_step(done)", ""),
    ("torch_resume()", "stuck", SNAPSHOT, "            after_step(done)", "            rank or after_step(done)"),
    ("torch_resume(shards=True)", "stuck", CHECKPOINT, "dcp.save(", "rank or dcp.save("),
    ("torch_resume(shards=True)", "half", CHECKPOINT.replace("whole[-1].parent", "whole[-1]"), "*/.metadata", "*"),
    ("torch_resume(shards=True)", "again", CHECKPOINT, 'done = state["done"]', "done = 0"),
    ("torch_resume(shards=True)", "dcp", ONE_FILE, "", ""),
    ("torch_resume(shards=True)", "units", CHECKPOINT, "isinstance(layer, torch.nn.Linear)", "False"),
]  # fmt: skip


def answer(text):
    """The function that a text defines where torch is: this Python has none."""
    (name,) = set(re.findall(r"^def (my_\w+)", text, re.MULTILINE))

    def program(*given):
        space = {}
        exec(text, space)
        return space[name](*given)

    return program
