"""The five dimensions of a mesh: what a device holds and sends of a decoder, and for how long.

    n devices = data × tensor × pipeline × context; the experts lie on `expert` of data × context

Devices are numbered along tensor first, then context, data, pipeline, so that the groups which send
most lie inside a machine. A micro-batch is one sequence; 1F1B; sequence parallelism; optimizer
sharded over data × context (ZeRO-1); FlashAttention. The page of `labkit.explore("mesh")` has the
same formulas, and a test compares the two.

>>> one = mesh(DECODERS["Llama 3 70B"], data=16, tensor=8, pipeline=4, sequence=8192)
>>> one.devices, one.micro_batches, f"{sum(one.held.values()) / 1e9:.1f} GB"
(512, 128, '38.0 GB')
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.arguments import whole
from labkit.kinds import LabError
from labkit.known_hardware import GPUS, LINKS, KnownGpu

TOKENS = 2**24  # of a step, where every replica has at least one sequence
WEIGHT, GRADIENT, OPTIMIZER = 2, 2, 12  # bytes a parameter
REACHED, DEVICES = 0.5, 8  # assumed: share of the peak; devices of a machine


@dataclass(frozen=True)
class Decoder:
    """Sizes of a model with gated MLPs; `chosen` of the `experts` work on a token."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    head: int
    mlp: int
    vocabulary: int
    experts: int = 1
    chosen: int = 1

    @property
    def attention(self) -> int:
        """Parameters of a layer's attention."""
        return 2 * self.hidden * self.head * (self.heads + self.key_heads)

    @property
    def expert(self) -> int:
        """Parameters of one MLP."""
        return 3 * self.hidden * self.mlp

    @property
    def router(self) -> int:
        """Parameters of a layer's router; 0 without experts."""
        return self.hidden * self.experts * (self.experts > 1)

    @property
    def parameters(self) -> int:
        """All of them; the head is no copy of the embedding."""
        layer = self.attention + 2 * self.hidden + self.router + self.experts * self.expert
        return self.layers * layer + (2 * self.vocabulary + 1) * self.hidden

    def flops(self, sequence: int) -> float:
        """Returns the FLOPs of a token, forward and backward, with causal attention."""
        layer = self.attention + self.router + self.chosen * self.expert
        layer += self.heads * self.head * sequence
        return 6 * (self.layers * layer + self.vocabulary * self.hidden)


# Sizes as their configurations on Hugging Face give them; Qwen's heads are wider than hidden.
DECODERS = {
    "Llama 3 8B": Decoder(32, 4096, 32, 8, 128, 14_336, 128_256),
    "Llama 3 70B": Decoder(80, 8192, 64, 8, 128, 28_672, 128_256),
    "Llama 3 405B": Decoder(126, 16_384, 128, 8, 128, 53_248, 128_256),
    "Mixtral 8x7B": Decoder(32, 4096, 32, 8, 128, 14_336, 32_000, 8, 2),
    "Qwen 3 235B": Decoder(94, 4096, 64, 4, 128, 1536, 151_936, 128, 8),
}


def ring_bytes(tokens: float, ranks: int, keys: float, passes: int = 2) -> float:
    """Returns what a rank sends in ring attention; `keys` are the numbers in a token's keys.

    Keys and values make p - 1 hops in each pass, forward, backward and where it is recomputed;
    their gradients make p. 16-bit numbers.
    """
    hops = 2 * (ranks - 1) * passes + 2 * ranks * (passes > 1)
    return tokens / ranks * keys * 2 * hops if ranks > 1 else 0.0


def ulysses_bytes(
    tokens: float, ranks: int, heads: float, key_heads: float, head: int, passes: int = 2
) -> float:
    """Returns what a rank sends in Ulysses: queries and results, keys and values, to heads."""
    moved = 2 * heads + 2 * max(key_heads, ranks)
    return (ranks - 1) / ranks * tokens / ranks * head * 2 * moved * passes


def goes_around(ranks: int, heads: float, key_heads: float) -> bool:
    """Whether ring attention is taken: forward it sends no more than Ulysses, or that has too few
    heads. Besides, its hops can hide behind blocks of attention.
    """
    return heads % ranks > 0 or key_heads * ranks <= heads + max(key_heads, ranks)


def expert_bytes(tokens: float, ranks: int, hidden: int, chosen: int) -> float:
    """Returns what a rank sends in one all-to-all of its tokens, a copy for each expert."""
    return (ranks - 1) / ranks * tokens * chosen * hidden * 2


@dataclass(frozen=True)
class Mesh:
    """Of the fullest device: bytes held, bytes sent a step by group, seconds of a step."""

    devices: int
    micro_batches: int
    held: dict[str, float]
    sent: dict[str, float]
    seconds: dict[str, float]
    ring: bool
    """Whether context parallelism is ring attention; otherwise it is Ulysses."""


def mesh(
    model: Decoder, *, data: int = 1, tensor: int = 1, pipeline: int = 1, context: int = 1,
    expert: int = 1, sequence: int = 8192, recompute: bool = False,
    gpu: KnownGpu = GPUS["H100 SXM"], network: float = LINKS["InfiniBand NDR"].bandwidth,
) -> Mesh:  # fmt: skip
    """Returns memory, bytes and time of a step; nothing overlaps, `network` is one device's."""
    sizes = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context,
             "expert": expert, "sequence": sequence}  # fmt: skip
    for name, size in sizes.items():
        whole(name, size, at_least=1)
    t, p, c, e, ranks = tensor, pipeline, context, expert, data * context
    if e > model.experts or ranks % e:
        raise LabError(
            f"expert must divide data × context = {ranks} and be at most {model.experts}, got {e}."
        )
    if t > model.heads or p > model.layers:
        raise LabError(f"At most tensor {model.heads} × pipeline {model.layers}, got {t} × {p}.")
    n, m = ranks * t * p, max(1, TOKENS // (sequence * data))
    layers, tokens = math.ceil(model.layers / p), sequence / c  # of a rank
    h, d, k = model.hidden, model.head, model.chosen
    many, again = model.experts > 1, int(recompute)
    keys = max(model.key_heads, t) / t  # heads of keys on a rank

    words = model.vocabulary * h / t
    dense = 2 * h * d * (model.heads / t + keys)  # ranks without a key head hold a copy
    dense += 2 * h + model.router + (not many) * model.expert / t
    own = layers * many * model.experts * model.expert / (e * t)
    layer = 8 * h + 4 * d * (model.heads + keys * t) + 8 * model.mlp * k + 4 * h * k * many
    layer = tokens / t * (layer + 4 * model.heads + 8)
    kept = 2 * h * tokens / t if recompute else layer
    stages = []
    for first, last in ((True, p == 1), (p == 1, True)):
        held = layers * dense + words * (first + last)
        stages.append({
            "weights": WEIGHT * (held + own),
            "gradients": GRADIENT * (held + own),
            "optimizer": OPTIMIZER * (held + own * e) / ranks,
            "activations": kept * layers * (min(p, m) if first else 1),
            "recomputed layer": layer - kept,
            "embedding and head": 4 * tokens * (model.vocabulary + h) / t * last,
        })  # fmt: skip

    around = goes_around(c, model.heads / t, keys)
    moved = (
        ring_bytes(sequence, c, keys * d, 2 + again)
        if around
        else ulysses_bytes(sequence, c, model.heads / t, keys, d, 2 + again)
    )
    step = m * layers
    sent = {
        "tensor": step * (5 + again) * 2 * (t - 1) / t * 2 * h * tokens,
        "context": step * moved,
        "expert": step * (4 + 2 * again) * expert_bytes(tokens / t, e, h, k),
        "data": (WEIGHT + GRADIENT)
        * ((ranks - 1) / ranks * (layers * dense + words) + (1 - e / ranks) * own),
        "pipeline": 2 * m * 2 * h * tokens / t * (p > 1),
    }
    spans = {"tensor": t, "context": t * c, "expert": t * e, "data": t * ranks, "pipeline": n}
    work = m * data * sequence * model.flops(sequence) * (4 / 3 if recompute else 1)
    computing = work / (n * gpu.flops * REACHED)
    seconds = {"computation": computing, "bubble": computing * (p - 1) / m}
    for name, span in spans.items():
        seconds[name] = sent[name] / (gpu.link_bandwidth if span <= DEVICES else network)
    return Mesh(n, m, max(stages, key=lambda one: sum(one.values())), sent, seconds, around)
