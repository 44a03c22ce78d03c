"""What answers of lecture 44 are judged by: memory of large models."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from labkit.collectives.records import listed
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text

# Korthikanti et al. 2022, Table 3; one as in lecture 44's exercise in one machine; and two whose
# last stage, with the logits of a large vocabulary, may hold more than their first.
_MODELS = (
    ({"layers": 48, "hidden": 6144, "heads": 64}, 8, 80e9),
    ({"layers": 96, "hidden": 12288, "heads": 96}, 64, 80e9),
    ({"layers": 128, "hidden": 25600, "heads": 160}, 1024, 40e9),
    ({"layers": 24, "hidden": 2048, "heads": 16}, 4, 24e9),
    (
        {"layers": 16, "hidden": 2048, "heads": 16, "vocabulary": 256_000, "sequence": 8192},
        16,
        4.6e9,
    ),
    ({"layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 256_000}, 64, 4.6e9),
)


_KEYS = ("tensor", "pipeline", "data", "zero", "sequence_parallel", "recompute")


def examine_plan(my_plan: Callable[..., Any]) -> None:
    """A plan that fits, for some models."""
    from labkit import memory
    from labkit.memory.step_memory import USABLE

    for shape, gpus, device in _MODELS:
        model: dict[str, Any] = {"sequence": 2048, "vocabulary": 51200, **shape}
        chosen = my_plan(dict(model), gpus, device)
        what = f"For {model['layers']} layers of {model['hidden']} on {gpus} GPUs it chose {chosen}"
        if not isinstance(chosen, Mapping):
            raise Wrong(f"{what}: return a dict such as dict(tensor=8, pipeline=2).")
        if extra := sorted(set(chosen) - {*_KEYS}):
            raise Wrong(f"{what}. A plan has no {extra[0]!r}: the task names {listed(_KEYS)}.")
        try:
            step = memory.fullest(memory.transformer(**model, **chosen))
        except (LabError, TypeError) as fault:
            raise Wrong(f"{what}. {fault}") from None
        divided = step.model
        assert divided is not None
        if divided.tensor * divided.pipeline * divided.data != gpus:
            raise Wrong(f"{what}: tensor × pipeline × data must be {gpus}.")
        if divided.tensor > 8:
            raise Wrong(f"{what}: tensor parallelism must stay in a machine of 8.")
        if step.total > USABLE * device:
            largest = max(step.parts, key=lambda part: part.bytes).name
            raise Wrong(
                f"{what}. Stage {divided.stage} holds {bytes_text(step.total)} on a device, "
                f"usable are {bytes_text(USABLE * device)}. Most of it: {largest}."
            )


def recomputes(*, whole: bool) -> Callable[[Callable[..., Any]], None]:
    """A step of a stack of blocks that recomputes them, `whole` or their scores only."""

    def examine(mine: Callable[..., Any]) -> None:
        for layers, tokens, hidden in ((1, 40, 8), (6, 40, 8), (4, 60, 4), (24, 40, 4)):
            _examine_step(mine, layers, tokens, hidden, whole)

    return examine


def _examine_step(
    mine: Callable[..., Any], layers: int, tokens: int, hidden: int, whole: bool
) -> None:
    from labkit.memory import recompute

    blocks, x = recompute.stack(layers, tokens, hidden)
    found = recompute.measured(mine, blocks, x, copies=True)
    right = recompute.measured(recompute.keep_everything, blocks, x, copies=True)
    what = f"With {layers} block{'s' * (layers > 1)} of {tokens} tokens"
    _check_calls(found, right, blocks, what, whole)
    mistake = ""
    if not isinstance(found.result, (list, tuple)) or len(found.result) != layers:
        raise Wrong(f"{what}: return a list with what backward gave for each of the blocks.")
    for n, (own, wanted) in enumerate(zip(found.result, right.result, strict=True)):
        if _same(own, wanted):
            continue
        if _same(own, right.result[layers - 1 - n]):
            raise Wrong(f"{what}: the gradients are in reverse order. Block 0's come first.")
        mistake = mistake or f"the gradients of block {n} are not those of the serial program"
    if mistake:
        raise Wrong(f"{what}: {mistake}, bit for bit.")
    size = 4 * tokens * hidden
    square, others = 9 * tokens**2, 9 * size
    enough = (layers + 2) * size + 2 * (square + others)
    if not whole:
        enough = (layers + 2) * (size + others) + 2 * square
    if found.peak > enough:
        least = "the inputs and one block's activations" if whole else "what is not of size s²"
        raise Wrong(
            f"{what}: at its peak it keeps {bytes_text(found.peak)} of what the blocks made, and "
            f"the program that keeps everything {bytes_text(right.peak)}. Keep {least} only."
        )


def _check_calls(found: Any, right: Any, blocks: Any, what: str, whole: bool) -> None:
    first = {n: (x, seed) for _, n, x, seed in right.calls}
    ran = [0] * len(blocks)
    for name, n, given, seed in found.calls:
        x, known = first[n]
        ran[n] += name == "forward"
        if ran[n] <= 1 and name == "forward":
            continue
        if seed != known:
            raise Wrong(
                f"{what}: block {n} is recomputed with the seed {seed}, and ran forward with "
                f"{known}. Dropout then drops other numbers: keep the seed."
            )
        if name == "forward" and not np.array_equal(given, x):
            is_output = np.array_equal(given, blocks[n].forward(x, known)[0])
            which = "its output" if is_output else "an array that is not its input"
            raise Wrong(f"{what}: block {n} is recomputed from {which}. Keep its input.")
    most = 2 if whole else 1
    if max(ran) > most:
        n = max(range(len(blocks)), key=ran.__getitem__)
        why = (
            "Recompute each block from its own input, not from the first one's."
            if whole
            else "Selective recomputation repeats scores(...) only."
        )
        times = "once is" if most == 1 else "2 times are"
        raise Wrong(f"{what}: block {n} runs forward {ran[n]} times, and {times} enough. {why}")


def _same(own: Any, wanted: Any) -> bool:
    return (
        isinstance(own, (list, tuple))
        and len(own) == len(wanted)
        and all(np.array_equal(a, b) for a, b in zip(own, wanted, strict=True))
    )
