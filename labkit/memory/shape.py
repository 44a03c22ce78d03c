"""The formulas of a transformer: parameters, activations and FLOPs, as published.

Narayanan et al. 2021 count parameters, Korthikanti et al. 2022 activations and FLOPs; their letters
are in the formulas: L layers, h hidden, a heads, s sequence, v vocabulary, b micro-batch,
t tensor-parallel ranks, p pipeline stages. Activations are 16-bit, with 1-byte dropout masks.

>>> activations_per_layer(hidden=6144, heads=64, sequence=2048, micro_batch=4, tensor=8)
1325400064
"""

from dataclasses import dataclass, fields

from labkit.arguments import MOST, one_of, whole
from labkit.kinds import LabError


def activations_per_layer(
    *, hidden: int, heads: int, sequence: int, micro_batch: int, tensor: int = 1,
    sequence_parallel: bool = False, recompute: str = "none",
) -> int:  # fmt: skip
    """Returns the bytes that a layer keeps for its backward pass, on one device.

    "selective" recomputes what attention makes of size s² (5as/h); "full" keeps the layer's input
    alone, 2sbh, of which sequence parallelism keeps 1/t on each rank.
    """
    sizes = {"hidden": hidden, "heads": heads, "sequence": sequence, "micro_batch": micro_batch}
    hidden, heads, sequence, micro_batch = (whole(*one, at_least=1) for one in sizes.items())
    tensor = whole("tensor", tensor, at_least=1)
    for name, size, parts, count in (
        ("hidden", hidden, "heads", heads), ("heads", heads, "tensor", tensor),
    ):  # fmt: skip
        if size % count:
            raise LabError(f"{name} must be a multiple of {parts} = {count}, got {size}.")
    if one_of("recompute", recompute, ("none", "selective", "full")) == "full":
        return 2 * sequence * micro_batch * hidden // (tensor if sequence_parallel else 1)
    shared = 34 / tensor if sequence_parallel else 10 + 24 / tensor
    attention = 5 * heads * sequence / (hidden * tensor) if recompute == "none" else 0
    return round(sequence * micro_batch * hidden * (shared + attention))


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
    def parameters(self) -> int:
        """P = 12Lh² (1 + 13/(12h) + (v + s)/(12Lh)): layers, word and position embeddings."""
        h = self.hidden
        return self.layers * (12 * h**2 + 13 * h) + (self.vocabulary + self.sequence) * h

    @property
    def layer(self) -> int:
        """Parameters of a layer on this device: tensor ranks divide all but norms and 2 biases."""
        return -(-(12 * self.hidden**2 + 7 * self.hidden) // self.tensor) + 6 * self.hidden

    @property
    def words(self) -> int:
        """Parameters of the word embedding on this device; the head multiplies with it, too."""
        return -(-self.vocabulary * self.hidden // self.tensor)

    @property
    def held(self) -> int:
        """Parameters of this device: both embeddings are in the first stage, a copy in the last."""
        ends = self.words * (self.stage in (0, self.pipeline - 1))
        positions = self.sequence * self.hidden * (self.stage == 0)
        return self.layers // self.pipeline * self.layer + ends + positions

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
            sequence_parallel=self.sequence_parallel, recompute=recompute,
        )  # fmt: skip

    @property
    def end_activations(self) -> int:
        """The embedding's dropout masks; inputs of the last norm and the head, float32 logits."""
        one = self.sequence * self.micro_batch * self.hidden
        one //= self.tensor if self.sequence_parallel else 1
        masks = one * min(self.pipeline, self.micro_batches or self.pipeline) * (self.stage == 0)
        logits = 4 * self.sequence * self.micro_batch * self.vocabulary // self.tensor
        return masks + (4 * one + logits) * (self.stage == self.pipeline - 1)

    def step_flops(self, layers: float = 72, attention: float = 72 / 6) -> float:
        """Returns 72BLsh² (1 + s/(6h) + v/(12hL)) for a batch of B sequences."""
        s, h = self.sequence, self.hidden
        head = 72 / 12 * self.vocabulary * h
        return self.batch * s * (self.layers * h * (layers * h + attention * s) + head)

    @property
    def hardware_flops(self) -> float:
        """With what is computed again: attention, or the whole forward pass of each layer."""
        again = {"none": (72, 12), "selective": (72, 24), "full": (96, 16)}
        return self.step_flops(*again[self.recompute])
