"""What one layer of a transformer keeps for its backward pass, and how long it takes: on a GPU.

python layer_memory.py > layer_memory.json        # PyTorch, a GPU with 20 GB

The layer of Korthikanti and others (2022): 22 billion parameters in 48 such layers. The attention
is written out, as in their paper; PyTorch's own (`scaled_dot_product_attention`) never stores the
scores.
"""

import json
import statistics
import time

import torch
from torch import nn
from torch.nn.functional import dropout, gelu
from torch.utils.checkpoint import checkpoint

HIDDEN, HEADS, SEQUENCE, BATCH, P = 6144, 64, 2048, 4, 0.1
RUNS = 10


class Layer(nn.Module):
    """Attention and a network of two layers, with dropout."""

    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def attention(self, qkv):
        """Softmax of the scores, times the values; everything is (sequence, batch · heads, d)."""
        q, k, v = (part.transpose(0, 1) for part in qkv.chunk(3, dim=-1))
        scores = torch.baddbmm(
            q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=q.size(-1) ** -0.5
        )
        return torch.bmm(dropout(scores.softmax(-1), P), v).transpose(0, 1)

    def layer(self, x):
        """The whole layer; x is (sequence, batch, hidden)."""
        qkv = self.qkv(self.norms[0](x)).view(SEQUENCE, BATCH * HEADS, -1)
        if self.recompute == "selective":
            mixed = checkpoint(self.attention, qkv, use_reentrant=False)
        else:
            mixed = self.attention(qkv)
        x = x + dropout(self.out(mixed.reshape(SEQUENCE, BATCH, HIDDEN)), P)
        return x + dropout(self.down(gelu(self.up(self.norms[1](x)))), P)

    def forward(self, x):
        """The layer, all of it recomputed if so asked."""
        if self.recompute == "full":
            return checkpoint(self.layer, x, use_reentrant=False)
        return self.layer(x)


def measure(recompute):
    """Bytes that are kept between the passes, and milliseconds of both."""
    layer = Layer(recompute).to("cuda", torch.bfloat16)
    x = torch.randn(
        SEQUENCE, BATCH, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True
    )
    gradient = torch.randn_like(x)
    kept, forward, backward = [], [], []
    for _ in range(3 + RUNS):
        layer.zero_grad(set_to_none=False)
        x.grad = None
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        before = torch.cuda.memory_allocated()
        events[0].record()
        y = layer(x)
        events[1].record()
        # The output belongs to the next layer; the input is kept for this one.
        kept.append(torch.cuda.memory_allocated() - before - y.nbytes + x.nbytes)
        y.backward(gradient)
        events[2].record()
        torch.cuda.synchronize()
        forward.append(events[0].elapsed_time(events[1]))
        backward.append(events[1].elapsed_time(events[2]))
        del y
    return {
        "kept": kept[-1],
        "forward ms": round(statistics.median(forward[3:]), 2),
        "backward ms": round(statistics.median(backward[3:]), 2),
    }


if __name__ == "__main__":
    found = {recompute: measure(recompute) for recompute in ("none", "selective", "full")}
    on = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    print(json.dumps({"on": on, "date": time.strftime("%Y-%m-%d"), "layer": found}, indent=1))
