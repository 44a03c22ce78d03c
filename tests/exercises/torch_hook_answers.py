# ruff: noqa: E501 (a mistake is a row)
"""Right hooks and local SGD in PyTorch, torch's own among them, and mistakes."""

FLOAT16 = """
import torch
import torch.distributed as dist

def my_hook(state, bucket):
    wanted = bucket.buffer() / dist.get_world_size() + state.get(bucket.index(), 0)
    half = wanted.half()
    state[bucket.index()] = wanted - half
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].float())
"""
BLOCKING = """
import torch
import torch.distributed as dist

def my_hook(state, bucket):
    size, key = dist.get_world_size(), bucket.index()
    wanted = bucket.buffer().div_(size)
    if key in state:
        wanted += state[key]
    half = wanted.to(torch.float16)
    state[key] = wanted - half.to(torch.float32)
    dist.all_reduce(half)
    bucket.buffer().copy_(half)
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
"""
GATHERED = """
import torch
import torch.distributed as dist

def my_hook(state, bucket):
    size = dist.get_world_size()
    key = bucket.index()
    wanted = bucket.buffer() + state.setdefault(key, torch.zeros(len(bucket.buffer())))
    half = wanted.half()
    state[key] = wanted - half.float()
    every = [torch.empty_like(half) for _ in range(size)]
    dist.all_gather(every, half)
    future = torch.futures.Future()
    future.set_result(torch.stack(every).float().mean(0))
    return future
"""
TORCHS_FLOAT16 = """
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

def my_hook(state, bucket):
    return fp16_compress_hook(None, bucket)
"""
LOW_RANK = """
import torch
import torch.distributed as dist

def my_hook(state, bucket):
    (gradient,) = bucket.gradients()
    lost, q = state.get(bucket.index(), (0, torch.randn(gradient.shape[1], 1)))
    m = gradient + lost
    p = m @ q
    dist.all_reduce(p)
    p, _ = torch.linalg.qr(p)
    q = m.T @ p / dist.get_world_size()
    dist.all_reduce(q)
    whole = p @ q.T
    state[bucket.index()] = m - whole, q
    future = torch.futures.Future()
    future.set_result(whole.flatten())
    return future
"""
CHAINED = """
import torch
import torch.distributed as dist

def my_hook(state, bucket):
    key, size, matrix = bucket.index(), dist.get_world_size(), bucket.gradients()[0]
    if key not in state:
        torch.manual_seed(0)
        state[key] = {"error": torch.zeros_like(matrix), "q": torch.rand(matrix.shape[1])}
    mine = state[key]
    m = matrix + mine["error"]
    first = dist.all_reduce(m @ mine["q"], async_op=True).get_future()

    def second(done):
        p = done.value()[0]
        p = p / torch.linalg.norm(p)
        q = m.T @ p
        dist.all_reduce(q)
        mine["q"] = q / size
        approximation = torch.outer(p, mine["q"])
        mine["error"] = m - approximation
        return approximation.view(-1)

    return first.then(second)
"""
TORCHS_LOW_RANK = """
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

def my_hook(state, bucket):
    if "torch" not in state:
        state["torch"] = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        state["torch"].iter = 2
    return powerSGD_hook(state["torch"], bucket)
"""
LOCAL = """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def my_training(model, batches, every):
    for one in model.parameters():
        dist.broadcast(one.data, 0)
    for step, (x, y, total) in enumerate(batches):
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.125 * one.grad
            if (step + 1) % every == 0 or step + 1 == len(batches):
                flat = torch.cat([one.flatten() for one in model.parameters()])
                dist.all_reduce(flat)
                flat /= dist.get_world_size()
                parts = flat.split([one.numel() for one in model.parameters()])
                for one, part in zip(model.parameters(), parts):
                    one.copy_(part.view_as(one))
"""
TORCHS_LOCAL = """
import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.functional import cross_entropy

def my_training(model, batches, every):
    for one in model.parameters():
        dist.broadcast(one.detach(), src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    averager = PeriodicModelAverager(period=every, warmup_steps=every - 1)
    for x, y, total in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    if len(batches) % every:
        for one in model.parameters():
            dist.all_reduce(one.detach())
            one.detach().div_(dist.get_world_size())
"""
RIGHT = {
    "torch_hook()": (FLOAT16, BLOCKING, GATHERED),
    "torch_hook(low_rank=True)": (LOW_RANK, CHAINED, TORCHS_LOW_RANK),
    "torch_local_sgd()": (LOCAL, TORCHS_LOCAL),
}
GRADIENTS = LOCAL.replace(
    "        with torch", "        for one in model.parameters():\n"
    "            dist.all_reduce(one.grad)\n            one.grad /= dist.get_world_size()\n"
    "        with torch",
).replace("if (step + 1) % every == 0 or step + 1 == len(batches)", "if False")  # fmt: skip
WRONG = [
    ("torch_hook()", "feedback", GATHERED, "key = bucket.index()", "key = len(bucket.buffer())"),
    ("torch_hook()", "feedback", TORCHS_FLOAT16, "", ""),
    ("torch_hook()", "feedback", FLOAT16, " + state.get", " - state.get"),
    ("torch_hook()", "feedback", FLOAT16, "wanted - half", "half - wanted"),
    ("torch_hook()", "feedback", BLOCKING, "state[key] = wanted", "state[key] = 2 * wanted"),
    ("torch_hook()", "infinite", FLOAT16.replace(" / dist.get_world_size() +", " +"), ".float())", ".float() / dist.get_world_size())"),
    ("torch_hook()", "not divided", FLOAT16, " / dist.get_world_size() +", " +"),
    ("torch_hook()", "twice", BLOCKING, "div_(size)", "div_(size * size)"),
    ("torch_hook()", "hook factor", BLOCKING, "div_(size)", "div_(5 * size)"),
    ("torch_hook()", "hook local", BLOCKING, "    dist.all_reduce(half)\n", "    half *= size\n"),
    ("torch_hook()", "differ", BLOCKING, "    dist.all_reduce(half)\n", "    half *= size\n    dist.all_reduce(half[:1])\n"),
    ("torch_hook()", "hook bytes", FLOAT16, "wanted.half()", "wanted.clone()"),
    ("torch_hook()", "raised", FLOAT16, "return future.then", "future.then"),
    ("torch_hook()", "inexact", BLOCKING, "dist.all_reduce(half)", "half *= size; dist.broadcast(half, 0)"),
    ("torch_hook(low_rank=True)", "feedback", LOW_RANK, "m = gradient + lost", "m = gradient"),
    ("torch_hook(low_rank=True)", "feedback", LOW_RANK, "m - whole, q", "gradient - whole, q"),
    ("torch_hook(low_rank=True)", "inexact", LOW_RANK, "    p, _ = torch.linalg.qr(p)\n", ""),
    ("torch_hook(low_rank=True)", "not divided", LOW_RANK, " / dist.get_world_size()", ""),
    ("torch_hook(low_rank=True)", "differ", LOW_RANK, "    dist.all_reduce(p)\n", ""),
    ("torch_hook(low_rank=True)", "differ", LOW_RANK, "    dist.all_reduce(q)\n", ""),
    ("torch_hook(low_rank=True)", "hook bytes", LOW_RANK, "    p = m @ q\n", "    dist.all_reduce(m)\n    m /= dist.get_world_size()\n    p = m @ q\n"),
    ("torch_local_sgd()", "not averaged", LOCAL, "(step + 1) % every == 0 or ", ""),
    ("torch_local_sgd()", "not averaged", LOCAL, " or step + 1 == len(batches)", ""),
    ("torch_local_sgd()", "averaged early", LOCAL, "(step + 1) % every", "step % every"),
    ("torch_local_sgd()", "averaged early", GRADIENTS, "", ""),
    ("torch_local_sgd()", "added", LOCAL, "flat /= dist.get_world_size()", "pass"),
    ("torch_local_sgd()", "not the mean", LOCAL, "flat /= dist.get_world_size()", "flat /= 3"),
    ("torch_local_sgd()", "broadcast", LOCAL, "dist.broadcast(one.data, 0)", "pass"),
    ("torch_local_sgd()", "zero", LOCAL, "        model.zero_grad()\n", ""),
    ("torch_local_sgd()", "factor", LOCAL, "0.125 *", "0.1 *"),
    ("torch_local_sgd()", "hook bytes", LOCAL, "        with torch", "        for one in model.parameters():\n            dist.all_reduce(one.grad.clone())\n        with torch"),
    ("torch_local_sgd()", "few", LOCAL, "enumerate(batches)", "enumerate(list(batches)[:1])"),
]  # fmt: skip
