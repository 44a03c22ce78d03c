"""What PyTorch saves of a Llama layer for its backward pass is what memory.transformer counts."""

import json
import subprocess

import pytest

from labkit.memory import activations_per_layer
from tests.exercises.cells import NEEDS_TORCH, TORCH

PROGRAM = """
import json, sys
import torch
import torch.nn.functional as F

h, heads, keys, f, s, b = json.loads(sys.argv[1])
d, short = h // heads, torch.bfloat16


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        root = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, root)
        return (x * root).to(x.dtype) * scale


class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        one, two = x.chunk(2, -1)
        return torch.cat([one * cos - two * sin, one * sin + two * cos], -1)


def matrix(*shape):
    return torch.randn(*shape, dtype=short, requires_grad=True)


angles = torch.outer(torch.arange(s).float(), 10_000 ** (-torch.arange(0, d, 2) / d))
turns = angles.cos().to(short), angles.sin().to(short)
wq, wk, wv, wo = matrix(h, h), matrix(h, keys * d), matrix(h, keys * d), matrix(h, h)
gate, up, down = matrix(h, f), matrix(h, f), matrix(f, h)
scales = matrix(h), matrix(h)
weights = {one.untyped_storage().data_ptr() for one in (wq, wk, wv, wo, gate, up, down, *scales)}
saved = {}


def pack(array):
    storage = array.untyped_storage()
    if storage.data_ptr() not in weights:
        saved[storage.data_ptr()] = storage  # which keeps it alive: no address is used twice
    return array


x = matrix(b, s, h)
with torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
    y = Norm.apply(x, scales[0])
    q, k, v = ((y @ w).view(b, s, -1, d).transpose(1, 2) for w in (wq, wk, wv))
    q, k = Rotate.apply(q, *turns), Rotate.apply(k, *turns)
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + found.transpose(1, 2).reshape(b, s, h) @ wo
    y = Norm.apply(x, scales[1])
    x = x + (F.silu(y @ gate) * (y @ up)) @ down
print(sum(one.nbytes() for one in saved.values()))
"""


@NEEDS_TORCH
@pytest.mark.parametrize(
    "sizes", [(64, 4, 2, 176, 32, 1), (128, 8, 8, 344, 64, 2), (96, 6, 2, 256, 16, 3)]
)
def test_a_layer_keeps_what_pytorch_saves(sizes):
    """On a CPU fused attention has heads before positions, and a copy of its result is saved."""
    run = [str(TORCH.python), "-c", PROGRAM, json.dumps(sizes)]
    saved = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    h, heads, keys, f, s, b = sizes
    counted = activations_per_layer(
        hidden=h, heads=heads, key_heads=keys, mlp=f, sequence=s, micro_batch=b, block="llama",
        flash=True,
    )  # fmt: skip
    assert saved == counted + 2 * h * s * b
