"""The formulas of a transformer: parameters, activations and FLOPs, as published.

Narayanan et al. 2021 count parameters, Korthikanti et al. 2022 activations and FLOPs; their letters
are in the formulas: L layers, h hidden, a heads, s sequence, v vocabulary, b micro-batch,
t tensor-parallel ranks, p pipeline stages. Activations are 16-bit, with 1-byte dropout masks.

>>> activations_per_layer(hidden=6144, heads=64, sequence=2048, micro_batch=4, tensor=8)
1325400064

Two kinds of `block`. "gpt" is theirs: layer norms, biases, an MLP of two matrices, dropout, learned
positions. "llama" (Touvron et al. 2023) has RMSNorm, rotary positions, SwiGLU of three matrices,
neither biases nor dropout, and a head of its own. With `flash` attention keeps nothing of size s²,
only 4 bytes a head and token, the log-sum-exp of its scores (Dao et al. 2022). What a Llama layer
then keeps of a token is counted tensor by tensor, 12h + 4hG/a + 8f + 4a + 8 bytes with G key heads
and an MLP of width f, as PyTorch saves it; 6f where silu(gate) is computed again.

>>> activations_per_layer(hidden=4096, heads=32, key_heads=8, mlp=14336, sequence=1,
...                       micro_batch=1, block="llama", flash=True)
168072
"""

from dataclasses import dataclass, fields

from labkit.arguments import MOST, one_of, whole
from labkit.kinds import LabError

BLOCKS = ("gpt", "llama")


def key_width(hidden: int, heads: int, key_heads: int, tensor: int = 1) -> int:
    """Returns the columns of a rank's keys, times the ranks: each keeps at least one key head."""
    return hidden // heads * max(key_heads, tensor)


def usual(hidden: int, heads: int, key_heads: int | None, mlp: int | None) -> tuple[int, int]:
    """Returns key heads and width of the MLP: those of a GPT where they are not given."""
    wide = 4 * whole("hidden", hidden, at_least=1) if mlp is None else mlp
    return heads if key_heads is None else key_heads, wide


def activations_per_layer(
    *, hidden: int, heads: int, sequence: int, micro_batch: int, tensor: int = 1,
    sequence_parallel: bool = False, recompute: str = "none", key_heads: int | None = None,
    mlp: int | None = None, block: str = "gpt", dropout: bool | None = None, flash: bool = False,
    keep_silu: bool = True,
) -> int:  # fmt: skip
    """Returns the bytes that a layer keeps for its backward pass, on one device.

    "selective" recomputes what attention makes of size s² (5as/h), which `flash` never keeps.
    "full" keeps the layer's input alone: 2sbh, as Korthikanti et al. print, if each tensor rank
    keeps a copy. With sequence parallelism the input is sharded, and a rank keeps 2sbh/t.
    """
    key_heads, mlp = usual(hidden, heads, key_heads, mlp)
    sizes = {"hidden": hidden, "heads": heads, "sequence": sequence, "micro_batch": micro_batch,
             "tensor": tensor, "key_heads": key_heads, "mlp": mlp}  # fmt: skip
    h, a, s, b, t, keys, f = (whole(*one, at_least=1) for one in sizes.items())
    for name, size, parts, count in (
        ("hidden", h, "heads", a), ("heads", a, "tensor", t), ("heads", a, "key_heads", keys),
        ("key_heads", max(keys, t), "tensor", min(keys, t)),
    ):  # fmt: skip
        if size % count:
            either = " or a divisor" * (name == "key_heads")
            what = f"a multiple{either} of {parts} = {sizes[parts]}"
            raise LabError(f"{name} must be {what}, got {sizes[name]}.")
    llama = one_of("block", block, BLOCKS) == "llama"
    drops = not llama if dropout is None else dropout
    if one_of("recompute", recompute, ("none", "selective", "full")) == "full":
        return 2 * s * b * h // (t if sequence_parallel else 1)
    # Inputs of norms and of the first matrices; two masks; 1 / RMS of both norms in float32.
    whole_rows = (8 + 2 * drops) * h + 8 * llama
    wide = (8 if keep_silu else 6) if llama else 4  # gate, its silu, up, their product
    divided = 4 * h + 4 * key_width(h, a, keys, t) + wide * f + 4 * a * flash
    if recompute == "none" and not flash:
        divided += (5 if drops else 2) * a * s  # softmax; a mask; what it leaves
    return round(s * b * (whole_rows / (t if sequence_parallel else 1) + divided / t))


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A transformer, the batch of one step, how both are divided, and the stage to look at."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    micro_batch: int
    micro_batches: int | None
    tensor: int
    pipeline: int
    chunks: int
    stage: int
    data: int
    zero: int
    sequence_parallel: bool
    recompute: str
    convention: str
    key_heads: int
    mlp: int
    block: str
    dropout: bool
    flash: bool
    tied: bool
    keep_silu: bool

    def __post_init__(self) -> None:
        for one in fields(self):
            value, least = getattr(self, one.name), int(one.name not in ("stage", "zero"))
            if one.type is int or (one.name == "micro_batches" and value is not None):
                most = {"zero": 3, "layers": 1_000}.get(one.name, MOST)
                most = self.pipeline - 1 if one.name == "stage" else most
                count = whole(one.name, value, at_least=least, at_most=most)
                object.__setattr__(self, one.name, count)  # an int: NumPy's overflow
        self.layer_activations(self.recompute)  # checks the rest
        if self.layers % (parts := self.pipeline * self.chunks):
            what = f"pipeline × chunks = {parts}, got {self.layers}"
            raise LabError(f"layers must be a multiple of {what}.")

    @property
    def batch(self) -> int:
        """Sequences of one step on all devices; `micro_batches` counts once where it is None."""
        return self.micro_batch * (self.micro_batches or 1) * self.data

    @property
    def llama(self) -> bool:
        """Whether the layers are Llama's."""
        return self.block == "llama"

    def matrices(self, tensor: int = 1) -> int:
        """Numbers in a layer's matrices; 12h² in a GPT. More ranks than key heads hold copies."""
        h, keys = self.hidden, key_width(self.hidden, self.heads, self.key_heads, tensor)
        return 2 * h * (h + keys) + (2 + self.llama) * h * self.mlp

    @property
    def parameters(self) -> int:
        """P = 12Lh² (1 + 13/(12h) + (v + s)/(12Lh)) of a GPT: layers, word and position embeddings.

        A head of its own counts like another word embedding; a Llama has a last norm, no positions.
        """
        h, keys = self.hidden, key_width(self.hidden, self.heads, self.key_heads)
        vectors = 2 * h if self.llama else 7 * h + 2 * keys + self.mlp  # norms and biases
        ends = self.vocabulary * (2 - self.tied) + (1 if self.llama else self.sequence)
        return self.layers * (self.matrices() + vectors) + ends * h

    @property
    def layer(self) -> int:
        """Parameters of a layer on this device: tensor ranks divide all but norms and 2 biases."""
        h, keys = self.hidden, key_width(self.hidden, self.heads, self.key_heads, self.tensor)
        biases, copied = (0, 2 * h) if self.llama else (h + 2 * keys + self.mlp, 6 * h)
        return -(-(self.matrices(self.tensor) + biases) // self.tensor) + copied

    @property
    def words(self) -> int:
        """Parameters of the word embedding on this device; the head multiplies with it, too."""
        return -(-self.vocabulary * self.hidden // self.tensor)

    @property
    def held(self) -> int:
        """Parameters of this device: embeddings in the first stage, the head in the last.

        A tied head is a copy of the word embedding, and none where one stage has both.
        """
        first, last = self.stage == 0, self.stage == self.pipeline - 1
        ends = self.words * (first or last if self.tied else first + last)
        rows = last if self.llama else self.sequence * first  # the last norm, or positions
        return self.layers // self.pipeline * self.layer + ends + rows * self.hidden

    @property
    def in_flight(self) -> int:
        """Micro-batches whose activations this stage keeps under 1F1B, counted for each chunk."""
        p, v = self.pipeline, self.chunks
        most = p - self.stage if v == 1 else (v - 1) * p + 2 * (p - 1 - self.stage) + 1
        return min(most, (self.micro_batches or most) * v)

    def layer_activations(self, recompute: str) -> int:
        """Returns the bytes of a micro-batch in a layer."""
        return activations_per_layer(
            hidden=self.hidden, heads=self.heads, sequence=self.sequence,
            micro_batch=self.micro_batch, tensor=self.tensor,
            sequence_parallel=self.sequence_parallel, recompute=recompute, block=self.block,
            key_heads=self.key_heads, mlp=self.mlp, dropout=self.dropout, flash=self.flash,
            keep_silu=self.keep_silu,
        )  # fmt: skip

    @property
    def end_activations(self) -> int:
        """The embedding's dropout masks; inputs of the last norm and the head, float32 logits."""
        one = self.sequence * self.micro_batch * self.hidden
        one //= self.tensor if self.sequence_parallel else 1
        masks = one * min(self.pipeline, self.micro_batches or self.pipeline) * (self.stage == 0)
        masks *= self.dropout
        logits = 4 * self.sequence * self.micro_batch * self.vocabulary // self.tensor
        return masks + (4 * one + logits) * (self.stage == self.pipeline - 1)

    def step_flops(self, layers: float = 6, attention: float = 12) -> float:
        """Returns 72BLsh² (1 + s/(6h) + v/(12hL)) of a GPT, for a batch of B sequences.

        That is 6 for each number of a matrix and token, and 12sh of attention: masked scores count.
        """
        s, h = self.sequence, self.hidden
        each = self.layers * (layers * self.matrices() + attention * s * h)
        return self.batch * s * (each + 6 * self.vocabulary * h)

    @property
    def hardware_flops(self) -> float:
        """With what is computed again: attention, or the whole forward pass of each layer.

        FlashAttention's backward pass takes 2.5 times its forward pass (Dao 2023).
        """
        again = {"none": (6, 12), "selective": (6, 24), "full": (8, 16)}
        if self.flash:
            again = {"none": (6, 14), "selective": (6, 14), "full": (8, 18)}
        return self.step_flops(*again[self.recompute])
