"""What answers of lecture 44 are judged by: memory of large models."""

from collections.abc import Callable, Mapping
from typing import Any

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
