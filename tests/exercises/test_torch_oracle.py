"""The worked solutions behind the calls that Stanford's CS336 tests: DDP, sharded optimizer, FSDP.

Its second assignment gives a module or an optimizer, calls a function after backward, and
compares the weights with one process. Adapter and checks are ours; none of its code is here.
"""

import pytest

from tests.cluster.test_frameworks import TIMEOUT, cluster

ADAPTER = '''
import torch
import torch.distributed as dist
from torch import nn


def summed(gradient):
    dist.all_reduce(gradient.div_(dist.get_world_size()))


class Ddp(nn.Module):
    """Weights and buffers of rank 0; each bucket is sent when its last gradient is there."""

    def __init__(self, module, bucket_mb=0.0):
        super().__init__()
        self.module, self.flying, self.ready = module, [], {}
        for one in module.state_dict().values():
            dist.broadcast(one, 0)
        bucket = []
        wanted = [one for one in module.parameters() if one.requires_grad]
        for one in reversed(wanted):
            bucket.append(one)
            if sum(each.nbytes for each in bucket) >= bucket_mb * 2**20 or one is wanted[0]:
                for each in bucket:
                    each.register_post_accumulate_grad_hook(self.sends(tuple(bucket)))
                bucket = []

    def sends(self, bucket):
        def hook(parameter):
            ready = self.ready.setdefault(bucket, set())
            ready.add(parameter)
            if len(ready) == len(bucket):
                ready.clear()
                flat = torch.cat([one.grad.flatten() for one in bucket]) / dist.get_world_size()
                self.flying.append((bucket, flat, dist.all_reduce(flat, async_op=True)))

        return hook

    def forward(self, *args):
        return self.module(*args)

    def after_backward(self):
        for bucket, flat, handle in self.flying:
            handle.wait()
            for one, new in zip(bucket, flat.split([one.numel() for one in bucket])):
                one.grad.copy_(new.view(one.shape))
        self.flying.clear()


class ShardedOptimizer(torch.optim.Optimizer):
    """Parameter n belongs to rank n % ranks, which alone has its state."""

    def __init__(self, parameters, kind, **settings):
        self.kind, self.settings, self.inner, self.all = kind, settings, None, []
        super().__init__(parameters, settings)

    def add_param_group(self, group):
        super().add_param_group(group)
        group, mine = self.param_groups[-1], []
        for one in group["params"]:
            mine += [one] * (len(self.all) % dist.get_world_size() == dist.get_rank())
            self.all.append(one)
        its = {**group, "params": mine}
        if mine and self.inner is None:
            self.inner = self.kind([its], **self.settings)
        elif mine:
            self.inner.add_param_group(its)

    def step(self, closure=None):
        loss = self.inner.step(closure) if self.inner else closure and closure()
        for number, one in enumerate(self.all):
            dist.broadcast(one.data, number % dist.get_world_size())
        return loss


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, layer):
        ctx.layer = layer
        return layer.whole()

    @staticmethod
    def backward(ctx, gradient):
        mine = torch.empty_like(ctx.layer.shard)
        flat = nn.functional.pad(gradient.flatten(), (0, len(mine) * dist.get_world_size() - gradient.numel()))
        dist.reduce_scatter_single(mine, flat.to(mine.dtype) / dist.get_world_size())
        return mine, None


class Sharded(nn.Module):
    """Autograd keeps a note in place of the weight, and gathers it again."""

    def __init__(self, layer, dtype):
        super().__init__()
        self.layer, self.shape, self.dtype = layer, layer.weight.shape, dtype
        flat, ranks = layer.weight.data.flatten(), dist.get_world_size()
        flat = nn.functional.pad(flat, (0, -len(flat) % ranks))
        self.shard = nn.Parameter(flat.chunk(ranks)[dist.get_rank()].clone(), layer.weight.requires_grad)
        layer.weight = None

    def whole(self, dtype=None):
        shard = self.shard.detach().to(dtype or self.dtype)
        found = torch.empty(len(shard) * dist.get_world_size(), dtype=shard.dtype)
        dist.all_gather_single(found, shard)
        return found[: self.shape.numel()].view(self.shape)

    def forward(self, x):
        weight = Gather.apply(self.shard, self)
        own = weight.untyped_storage().data_ptr()
        pack = lambda one: (one.shape, one.stride()) if one.untyped_storage().data_ptr() == own else one
        unpack = lambda kept: self.whole().as_strided(*kept) if isinstance(kept, tuple) else kept
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            rest = {name: one.to(self.dtype) for name, one in self.layer.named_parameters()}
            x = x.to(self.dtype) if x.is_floating_point() else x
            return torch.func.functional_call(self.layer, {**rest, "weight": weight}, (x,))


def fsdp(module, dtype=torch.float32):
    for name, layer in list(module.named_children()):
        if isinstance(layer, nn.Linear | nn.Embedding):
            setattr(module, name, Sharded(layer, dtype))
    return module


def full(module):
    shards = {f"{n}.weight": one.whole(torch.float32) for n, one in module.named_children() if isinstance(one, Sharded)}
    rest = {n.replace(".layer", ""): one.data for n, one in module.named_parameters() if "shard" not in n}
    return {**rest, **shards}


def make(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16, bias=False), nn.LayerNorm(16),
                          nn.ReLU(), nn.Linear(16, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 16))
    model[5].requires_grad_(False)
    return model


def trained(model, optimizer, rank, ranks, after=lambda: None):
    made = torch.Generator().manual_seed(1)
    for _ in range(4):
        x, y = torch.randint(16, (12,), generator=made), torch.randn(12, 16, generator=made)
        mine = slice(rank * 12 // ranks, (rank + 1) * 12 // ranks)
        optimizer.zero_grad()
        (model(x[mine]).float() - y[mine]).square().mean().backward()
        after()
        optimizer.step()
    return model


def far(rank):
    """The largest difference of a weight to those of one process."""
    sgd, adamw, ranks, out = torch.optim.SGD, torch.optim.AdamW, dist.get_world_size(), {}
    alone = lambda kind, model: dict(
        trained(model, kind(model.parameters(), lr=0.1), 0, 1).named_parameters())
    apart = lambda found, right: max(float((found[n] - one).abs().max()) for n, one in right.items())
    for name, size in (("each", 0.0), ("buckets", 0.0005), ("flat", 1.0)):
        model = Ddp(make(seed=rank), size)
        trained(model, sgd(model.parameters(), lr=0.1), rank, ranks, model.after_backward)
        out[name] = apart(dict(model.module.named_parameters()), alone(sgd, make()))
    model = make()
    trained(model, ShardedOptimizer(model.parameters(), adamw, lr=0.1), 0, 1)
    out["sharded optimizer"] = apart(dict(model.named_parameters()), alone(adamw, make()))
    for dtype in (torch.float32, torch.float16):
        model = fsdp(make(), dtype)
        rest = [one for name, one in model.named_parameters() if "shard" not in name]
        after = lambda: [summed(one.grad) for one in rest if one.grad is not None]
        trained(model, sgd(model.parameters(), lr=0.1), rank, ranks, after)
        out[f"fsdp {dtype}"] = apart(full(model), alone(sgd, make()))
    return out
'''  # noqa: E501


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_worked_solutions_pass_the_checks_of_another_course(ranks):
    def in_rank(_, source, ranks):
        import labkit.exercises.judges.pytorch.torch_ranks as torch_ranks

        space = {}
        exec(source, space)
        world = torch_ranks.run(lambda _, rank: space["far"](rank), ranks)
        return world.results, [repr(one) for one in world.faults.values()], world.why

    with cluster("torch", 1) as c:
        results, faults, why = c.run(in_rank, ADAPTER, ranks, timeout=TIMEOUT, show=False)[0]
    assert (faults, why) == ([], "")
    for found in results.values():
        for name, one in found.items():
            assert one < (1e-3 if "16" in name else 1e-6), (name, found)
