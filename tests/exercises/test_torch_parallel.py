"""The judges of tensor and pipeline parallelism: right programs pass, each mistake has its name."""

# ruff: noqa: E501 (a mistake a line)
import pytest

from labkit.exercises import judge_names
from labkit.exercises.judges.pytorch.torch_parallel import SAYS
from labkit.exercises.lecture_tasks import tasks
from labkit.exercises.task import Wrong
from tests.exercises import torch_answers
from tests.exercises.cells import NEEDS_TORCH

pytestmark = NEEDS_TORCH
MLP, TOKENS, BLOCK = "torch_layer()", "torch_layer(tokens=True)", "torch_layer(block=True, most=4)"
SCHEDULE = "torch_schedule()"

# By hand, with strided pieces, stored transposed, a hook in place of f, the bias on rank 0 alone.
STRIDED = """
import torch
import torch.distributed as dist
from torch import nn

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        part = part.clone()
        dist.all_reduce(part)
        return part

    @staticmethod
    def backward(ctx, dy):
        return dy

class Strided(nn.Module):
    def __init__(self, whole):
        super().__init__()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        state = whole.state_dict()
        self.a = nn.Parameter(state["0.weight"][rank::ranks].T.clone())
        self.b = nn.Parameter(state["0.bias"][rank::ranks].clone())
        self.c = nn.Parameter(state["2.weight"][:, rank::ranks].T.clone())
        if rank == 0:
            self.d = nn.Parameter(state["2.bias"].clone())

    def forward(self, x):
        x = x * 1
        x.register_hook(self.add)
        part = torch.relu(x @ self.a + self.b) @ self.c
        return Sum.apply(part + self.d if dist.get_rank() == 0 else part)

    def add(self, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient

def my_mlp(whole):
    return Strided(whole)
"""
PLANNED = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def my_mlp(whole):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(whole, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
"""
ROWS = (
    STRIDED.replace('state["0.weight"][rank::ranks]', 'state["0.weight"][:, rank::ranks]')
    .replace('"0.bias"][rank::ranks]', '"0.bias"]')
    .replace(
        "torch.relu(x @ self.a + self.b)",
        "torch.relu(Sum.apply(x[:, self.mine] @ self.a) + self.b)[:, self.mine]",
    )
    .replace("        state =", "        self.mine = slice(rank, None, ranks)\n        state =")
)
BY_LISTS = """
import torch
import torch.distributed as dist
from torch import nn

class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, dy):
        parts = [one.contiguous() for one in dy.chunk(dist.get_world_size())]
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter(mine, parts)
        return mine

class Mine(Whole):
    forward, backward = Whole.backward, Whole.forward

def my_mlp(whole):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    part = nn.Sequential(nn.Linear(12, 20 // ranks, False), nn.Linear(20 // ranks, 12, False))
    with torch.no_grad():
        part[0].weight.copy_(whole[0].weight.chunk(ranks)[rank])
        part[1].weight.copy_(whole[2].weight.chunk(ranks, 1)[rank])
    part[0].register_forward_pre_hook(lambda _, given: Whole.apply(*given))
    part[0].register_forward_hook(lambda *its: its[2].relu())
    part[1].register_forward_hook(lambda *its: Mine.apply(its[2]))
    return part
"""
TOKENS_PLANNED = PLANNED.replace(
    "import torch.dist", "from torch.distributed.tensor import Shard\nimport torch.dist", 1
)
TOKENS_PLANNED = TOKENS_PLANNED.replace(
    "ColwiseParallel()", "ColwiseParallel(input_layouts=Shard(0))"
)
TOKENS_PLANNED = TOKENS_PLANNED.replace(
    "RowwiseParallel()", "RowwiseParallel(output_layouts=Shard(0))"
)
BY_NORMS = """
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import *

def my_plan(block, mesh):
    whole = {"output_layouts": Replicate(), "desired_output_layouts": Replicate()}
    for norm in (block.norm1, block.norm2):
        parallelize_module(norm, mesh, PrepareModuleOutput(**whole, use_local_output=False))
    columns, rows = ColwiseParallel(), RowwiseParallel()
    parallelize_module(block.attention, mesh, {"[qkv]": columns, "o": rows})
    parallelize_module(block.mlp, mesh, {"gate": columns, "up": columns, "down": rows})
    return block
"""
HALVES = """
def my_schedule(stages, micro_batches, held):
    rows = []
    for rank in range(stages):
        ahead = min(stages - rank, held, micro_batches)
        row = [f"{rank}F{m}" for m in range(ahead)]
        for m in range(micro_batches):
            row += [f"{rank}I{m}", f"{rank}W{m}"]
            row += [f"{rank}F{m + ahead}"] * (m + ahead < micro_batches)
        rows.append(row)
    return rows
"""
SOLVED = {
    name: tasks()[f"55.{name}"].solution for name in ("column_row", "sequence", "plan", "schedule")
}
RIGHT = [(MLP, STRIDED), (MLP, PLANNED), (TOKENS, BY_LISTS), (TOKENS, TOKENS_PLANNED)]
RIGHT += [(BLOCK, BY_NORMS), (SCHEDULE, HALVES)]
HAND = SOLVED["column_row"]
ADDED = "            return dy\n\n    class G"
WRONG = [
    (MLP, "returned", HAND, "return Part()", "Part()"),
    (MLP, "returned", HAND, "return Part()", "return Part().forward"),
    (MLP, "whole", STRIDED, "super().__init__()", "super().__init__(); self.whole = whole"),
    (MLP, "view", STRIDED, '.T.clone())\n        self.b', '.T)\n        self.b'),
    (MLP, "view", HAND, "part.clone()", "part"),
    (MLP, "shape", HAND, "G.apply(hidden @ self.down.T) + self", "G.apply(hidden @ self.down.T)[:1] + self"),
    (MLP, "bias", HAND, "self.down.T) + self.down_bias", "self.down.T + self.down_bias)"),
    (MLP, "bias", STRIDED.replace("if rank == 0:", "if True:"), "if dist.get_rank() == 0 else part", ""),
    (MLP, "no bias", HAND, " + self.down_bias\n", "\n"),
    (MLP, "no sum", HAND, "G.apply(hidden @ self.down.T)", "hidden @ self.down.T"),
    (MLP, "no sum", STRIDED, "Sum.apply(part + self.d if dist.get_rank() == 0 else part)", "part + self.d if dist.get_rank() == 0 else part"),
    (MLP, "y", HAND, "torch.relu(F.apply(x) @ self.up.T + self.up_bias)", "F.apply(x) @ self.up.T + self.up_bias"),
    (MLP, "no input sum", HAND, "F.apply(x)", "x"),
    (MLP, "no input sum", STRIDED, "x.register_hook(self.add)", "pass"),
    (MLP, "input mean", HAND, "dist.all_reduce(dy)", "dist.all_reduce(dy, dist.ReduceOp.AVG)"),
    (MLP, "input times", STRIDED, "        return dy\n", "        dy = dy.clone()\n        dist.all_reduce(dy)\n        return dy\n"),
    (MLP, "dx", HAND, "return dy\n\n    class G", "return dy + 1\n\n    class G"),
    (MLP, "weight", STRIDED, 'nn.Parameter(state["0.bias"][rank::ranks].clone())', 'state["0.bias"][rank::ranks].clone()'),
    (MLP, "weight", HAND, "return nn.Parameter(part.clone())", "return part.clone().requires_grad_()"),
    (MLP, "weight times", HAND, "G.apply(hidden @ self.down.T) + self.down_bias", "G.apply(hidden @ self.down.T) + F.apply(self.down_bias)"),
    (MLP, "bytes", HAND, "hidden = torch", "dist.all_reduce(x.detach().clone()); hidden = torch"),
    (MLP, "dimension", ROWS, "", ""),
    (TOKENS, "shape", BY_LISTS, "Mine.apply(its[2])", "its[2]"),
    (TOKENS, "pieces", BY_LISTS, "dist.reduce_scatter(mine, parts)", "dist.reduce_scatter(mine, parts[1:] + parts[:1])"),
    (TOKENS, "bytes", BY_LISTS, "        dist.reduce_scatter(mine, parts)", "        dy = dy.clone()\n        dist.all_reduce(dy)\n        mine.copy_(dy.chunk(dist.get_world_size())[dist.get_rank()])"),
    (TOKENS, "y", BY_LISTS, "its[2].relu()", "its[2]"),
    (BLOCK, "bytes", SOLVED["plan"], '("attention", "mlp")', '("attention",)'),
    (BLOCK, "returned", BY_NORMS, "return block", "pass"),
    (BLOCK, "whole", SOLVED["plan"].replace(', "mlp.gate", "mlp.up")', ")").replace('"attention", "mlp"', '"attention",'), '("attention.o", "mlp.down")', '("attention.o",)'),
    (SCHEDULE, "schedule", SOLVED["schedule"], 'f"{rank}B{m}"', 'f"B{m}"'),
    (SCHEDULE, "schedule", SOLVED["schedule"], "return rows", "return rows[::-1]"),
    (SCHEDULE, "schedule", SOLVED["schedule"], "return rows", "return rows[:-1]"),
    (SCHEDULE, "schedule", SOLVED["schedule"], "return rows", "pass"),
    (SCHEDULE, "schedule", SOLVED["schedule"], "stages - rank, held", "stages, held"),
    (SCHEDULE, "schedule", SOLVED["schedule"], "stages - rank, held", "stages - rank"),
    (SCHEDULE, "schedule", SOLVED["schedule"], "held, micro_batches)", "held, 1)"),
]  # fmt: skip


def judge(call, text):
    return eval(call, vars(judge_names))(torch_answers.answer(text))


@pytest.mark.parametrize(
    ("call", "text"), [pytest.param(*one, id=f"{one[0]} {n}") for n, one in enumerate(RIGHT)]
)
def test_a_right_program_is_accepted(call, text):
    judge(call, text)


@pytest.mark.parametrize(
    ("call", "key", "text", "old", "new"),
    [pytest.param(*row, id=f"{row[0]} {row[1]} {n}") for n, row in enumerate(WRONG)],
)
def test_a_mistake_is_named(call, key, text, old, new):
    assert old in text
    with pytest.raises(Wrong) as found:
        judge(call, text.replace(old, new))
    assert found.value.key == key, found.value


def test_each_sentence_is_said_to_some_mistake():
    parts_of_bytes = {"layer", "tokens", "block"}
    assert {*SAYS} - {key for _, key, *_ in WRONG} <= parts_of_bytes | {"gradients"}
