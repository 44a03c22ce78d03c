"""A transformer on devices: memory of each stage, GPUs that it fits, MFU, days of training.

>>> model = transformer(layers=48, hidden=6144, heads=64, sequence=2048, vocabulary=51200,
...                     micro_batch=4, tensor=8, sequence_parallel=True, recompute="selective")
>>> model.parameters, str(mfu(model, seconds=1.10, gpus=8))
(22074261504, '41.7 %')
"""

from __future__ import annotations

import reprlib
from dataclasses import replace
from typing import TYPE_CHECKING

from labkit.arguments import number, one_of, whole
from labkit.kinds import LabError, Quantity, Seconds, bytes_text, modelled, percent_text
from labkit.known_hardware import GPUS
from labkit.memory.shape import Transformer, usual
from labkit.memory.step_memory import CONVENTIONS, STATE, USABLE, Footprint, Part

if TYPE_CHECKING:
    from labkit.views.table import Table

GPT = "Narayanan et al. 2021 (parameters), Korthikanti et al. 2022 (activations)"
FLASH = ", FlashAttention keeps a log-sum-exp (Dao et al. 2022)"
LLAMA = "matrices of Llama (Touvron et al. 2023), tensors that PyTorch saves for its backward pass"


def transformer(
    *, layers: int, hidden: int, heads: int, sequence: int, vocabulary: int, micro_batch: int = 1,
    micro_batches: int | None = None, tensor: int = 1, pipeline: int = 1, chunks: int = 1,
    stage: int = 0, data: int = 1, zero: int = 0, sequence_parallel: bool = False,
    recompute: str = "none", convention: str = "mixed adam 16", key_heads: int | None = None,
    mlp: int | None = None, block: str = "gpt", dropout: bool | None = None, flash: bool = False,
    tied: bool | None = None, keep_silu: bool = True,
) -> Footprint:  # fmt: skip
    """Returns what a device of a pipeline stage holds under 1F1B: state, activations, the rest.

    A step has `micro_batches` of `micro_batch` sequences; None is enough to fill the pipeline. With
    several `chunks` a stage the pipeline is interleaved. `recompute` may be "selective" or "full".
    `key_heads` are fewer than heads in grouped-query attention, `mlp` is the width of the MLP (4h).
    A `block` is "gpt" (dropout, tied head) or "llama" (SwiGLU, RMSNorm; neither of both); `dropout`
    and `tied` change that. `flash` keeps no scores; `keep_silu=False` recomputes silu(gate).

    >>> transformer(layers=80, hidden=8192, heads=64, key_heads=8, mlp=28672, sequence=4096,
    ...             vocabulary=32000, block="llama", flash=True).parameters  # Llama 2, 70B
    68976648192
    """
    key_heads, mlp = usual(hidden, heads, key_heads, mlp)
    tied, dropout = (block != "llama" if one is None else one for one in (tied, dropout))
    return _footprint(Transformer(**locals()))


def _footprint(model: Transformer) -> Footprint:
    sizes = CONVENTIONS[one_of("convention", model.convention, CONVENTIONS)]
    kept, chunk = model.layer_activations(model.recompute), model.pipeline * model.chunks
    gathered = model.zero == 3 and model.data > 1
    held = f"{model.layers // chunk} layers, {model.in_flight} in flight"
    found = [(name, size * model.held, f"{size} B × {model.held:,} parameters")
             for name, size in zip(STATE, sizes, strict=True)]  # fmt: skip
    found += [
        ("activations", kept * model.in_flight * model.layers // chunk,
         f"{bytes_text(kept)} × {held}"),
        ("embedding and head", model.end_activations,
         "dropout masks, " * model.dropout + "inputs, logits"),
        ("recomputed layer", model.layer_activations("none") - kept, "during its backward pass"),
        ("gathered layer", sum(sizes[:2]) * max(model.layer, model.words) * gathered,
         "weights and gradient of the largest layer, not sharded"),
    ]  # fmt: skip
    parts = tuple(Part(*one) for one in found if one[0] in (*STATE, "activations") or one[1])
    kind = modelled((LLAMA if model.llama else GPT) + FLASH * model.flash)
    step = Footprint("", model.convention, model.parameters, parts, kind, model).sharded(
        model.data, ("optimizer", "gradients", "weights")[: model.zero]
    )
    scheme = (
        f"stage {model.stage} of {model.pipeline}, tensor {model.tensor}, data {model.data}, "
        f"ZeRO-{model.zero}, recompute {model.recompute}"
    )
    return replace(step, scheme=scheme, kind=kind)


def stages(step: Footprint) -> dict[str, Footprint]:
    """Returns a device of each pipeline stage, by name, for `bars`."""
    model = _model(step)
    each = (replace(model, stage=stage) for stage in range(model.pipeline))
    return {f"stage {one.stage}": _footprint(one) for one in each}


def _model(step: Footprint) -> Transformer:
    if not isinstance(step, Footprint) or step.model is None:
        raise LabError(
            f"This needs what memory.transformer(...) returns, got {reprlib.repr(step)}."
        )
    return step.model


class Utilisation(Quantity):
    """A share of the peak FLOP/s; `hardware` also counts the FLOPs that were recomputed."""

    unit = "share"
    hardware: float

    def __str__(self) -> str:
        return percent_text(self)


def mfu(
    model: Footprint, *, seconds: float, gpus: int, peak: float = GPUS["A100 80 GB"].flops
) -> Utilisation:
    """Returns the model FLOPs utilisation: FLOPs of a step over those that the GPUs could do.

    A step has micro_batch × micro_batches × data sequences; without a pipeline micro_batches=None
    is one.
    """
    of = _model(model)
    if of.pipeline > 1 and of.micro_batches is None:
        raise LabError("The time of a step with a pipeline needs transformer(micro_batches=…).")
    could = number("seconds", seconds, above=0) * number("peak", peak, above=0)
    could *= whole("gpus", gpus, at_least=1)
    what = (
        f"{of.batch:,} sequences in {Seconds(seconds)} on {gpus:,} GPUs of {peak / 1e12:g} TFLOP/s"
    )
    rule = "72BLsh²(1 + s/6h + v/12hL)"
    if of.matrices() != 12 * of.hidden**2:
        rule = "6 a matrix entry and token, 12Lsh of attention a token:"
    kind = modelled(f"{rule} FLOPs of {what}")
    share = Utilisation(of.step_flops() / could, kind)
    share.hardware = of.hardware_flops / could
    return share


def time_to_train(*, parameters: float, tokens: float, gpus: int, flops: float) -> Seconds:
    """Returns 8TP/(nX): `tokens` through `parameters` at `flops` per second on each GPU.

    2 FLOPs a parameter and token forward, 4 backward, 2 for full recomputation. Without it the
    time is 6/8 of this (Narayanan et al. 2021, equation 4).
    """
    work = 8 * number("parameters", parameters, above=0) * number("tokens", tokens, above=0)
    rate = whole("gpus", gpus, at_least=1) * number("flops", flops, above=0)
    return Seconds(work / rate, modelled("8TP/(nX), Narayanan et al. 2021"))


def fullest(step: Footprint) -> Footprint:
    """Returns the stage of a pipeline that holds most; any other step as it is."""
    return max(stages(step).values(), key=lambda one: one.total) if step.model else step


def fits(step: Footprint) -> Table:
    """Returns a table of the known GPUs on which a step fits; of a pipeline, its fullest stage."""
    from labkit.views.table import Table

    most = fullest(step)
    rows = [
        (name, bytes_text(gpu.memory), percent_text(most.total / gpu.memory),
         "yes" if most.total <= USABLE * gpu.memory else "no")
        for name, gpu in GPUS.items()
    ]  # fmt: skip
    title = f"{most.parameters:,} parameters, {most.scheme}: {bytes_text(most.total)}"
    note = (
        "modelled: bytes counted, nine tenths of a GPU's memory taken as usable; the memory is "
        "recorded, with its source in labkit.known_hardware.GPUS"
    )
    return Table(("GPU", "memory", "the step needs", "fits"), rows, title, note)
