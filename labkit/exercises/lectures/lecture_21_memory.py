"""The tasks of lecture 21: memory of large models."""

from collections.abc import Callable, Mapping
from typing import Any

from labkit.collectives.records import listed
from labkit.exercises.judges.answers import function, function_task, number
from labkit.exercises.judges.model_parallel import on_ranks, zero_1, zero_3
from labkit.exercises.task import Task, Wrong
from labkit.kinds import LabError, bytes_text

# Korthikanti et al. 2022, Table 3; the last is that of lecture 21's exercise in one machine.
_MODELS = (
    ({"layers": 48, "hidden": 6144, "heads": 64}, 8, 80e9),
    ({"layers": 96, "hidden": 12288, "heads": 96}, 64, 80e9),
    ({"layers": 128, "hidden": 25600, "heads": 160}, 1024, 40e9),
    ({"layers": 24, "hidden": 2048, "heads": 16}, 4, 24e9),
)


_KEYS = ("tensor", "pipeline", "data", "zero", "sequence_parallel", "recompute")


def _examine_plan(my_plan: Callable[..., Any]) -> None:
    from labkit import memory
    from labkit.memory.step_memory import USABLE

    for shape, gpus, device in _MODELS:
        model: dict[str, Any] = {**shape, "sequence": 2048, "vocabulary": 51200}
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


BYTES = "s * b * h * (whole + divided / t) + scores * a * s**2 * b / t"
TASKS = {
    "21.zero_2": Task(
        "7.5 billion parameters in mixed precision with Adam (2, 2 and 12 bytes per parameter), "
        "ZeRO-2 on 16 devices. How many GB of state does each device hold?",
        number(21.5625, "GB", within=0.002),
        ("Which of the three parts are sharded at stage 2?", "2 + (2 + 12) / 16 bytes each."),
        """
weights = 2 * 7.5
sharded = (2 + 12) * 7.5 / 16
answer = weights + sharded
""",
        "Only the weights are whole: 15 GB, and 6.6 GB of everything else.",
        slips={35.625: "That is stage 1.", 7.5: "That is stage 3.", 120: "That is stage 0."},
    ),
    "21.zero_1": Task(
        "Write my_step(comm, weights, gradient, optimizer): one step of ZeRO-1. Every rank has all "
        "weights, and a gradient of its own. Average the gradients. Each rank updates only its own "
        "piece (np.array_split, piece r on rank r) with optimizer.update(piece of weights, piece "
        "of gradient), once, in place. At the end all ranks have all new weights. Per step no rank "
        "may send more than 2 (n - 1) / n of the weights.",
        on_ranks(zero_1, (4,), (2,), (3,), (8,), (1,)),
        (
            "programs.reduce_scatter(comm, gradient) leaves the sum of piece r on rank r. What "
            "makes it a mean?",
            "np.array_split gives views: what optimizer.update changes in a view has changed in "
            "weights.",
            "Now each rank has one new piece. Which collective gives all pieces to all ranks?",
        ),
        """
def my_step(comm, weights, gradient, optimizer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    programs.reduce_scatter(comm, gradient)
    mean = np.array_split(gradient, ranks)[rank] / ranks
    optimizer.update(np.array_split(weights, ranks)[rank], mean)
    programs.all_gather(comm, weights)
""",
        "As many bytes as the all-reduce of plain data parallelism, and an n-th of the optimizer's "
        "state.",
        difficulty=2,
    ),
    "21.zero_3": Task(
        "Write my_step(comm, parts, gradient_of, optimizers): one step of ZeRO-3, layer by layer. "
        "parts[n] is this rank's part of layer n, and all that it has. Gather the layer, compute "
        "gradient_of(n, layer), average the gradients, keep your part of them, and call "
        "optimizers[n].update(parts[n], part of the gradient).",
        on_ranks(zero_3, (4,), (2,), (3,), (8,), (1,)),
        (
            "Make an empty array for the whole layer, put your part in its place, and all-gather.",
            "The whole layer has parts[n].size * ranks weights.",
            "The gradient is reduced as in ZeRO-1. After the update nothing has to be sent.",
        ),
        """
def my_step(comm, parts, gradient_of, optimizers):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    for n in range(len(parts)):
        layer = np.empty(parts[n].size * ranks)
        np.array_split(layer, ranks)[rank][:] = parts[n]
        programs.all_gather(comm, layer)
        gradient = gradient_of(n, layer)
        programs.reduce_scatter(comm, gradient)
        mean = np.array_split(gradient, ranks)[rank] / ranks
        optimizers[n].update(parts[n], mean)
""",
        "At any time one layer is whole. In real training the forward pass gathers it once more.",
        difficulty=3,
    ),
    "21.activations": function_task(
        "Write my_activations(h, a, s, b, t): the bytes that one layer keeps on each of t "
        "tensor-parallel ranks, without sequence parallelism and without recomputation.",
        [
            *((6144, 64, 2048, 4, 1), (6144, 64, 2048, 4, 8), (12288, 96, 2048, 1, 8)),
            (4096, 32, 8192, 2, 2),
        ],
        (
            "Add up the rows of the table of section 4: first those that t divides, then the "
            "others.",
            "In units of sbh, 24 are divided and 10 are not. What of size as²b is kept?",
        ),
        """
def my_activations(h, a, s, b, t):
    whole = 2 + 1 + 2 + 1 + 4
    divided = 2 + 2 + 2 + 2 + 8 + 8
    scores = 2 + 1 + 2
    return s * b * h * (whole + divided / t) + scores * a * s**2 * b / t
""",
        "sbh (10 + 24/t + 5as/(ht)). Sequence parallelism divides the 10 as well.",
        slips=[
            ("(whole + divided / t)", "(whole + divided) / t", "That is sequence parallelism."),
            ("b / t", "b", "t divides the rows of size as²b, too."),
            (BYTES, "2 * s * b * h", "That is full recomputation."),
        ],
        difficulty=2,
    ),
    "21.plan": Task(
        "Write my_plan(model, gpus, device_memory): return a dict with tensor, pipeline and data "
        "(together gpus; tensor at most 8), and if needed zero, sequence_parallel and recompute, "
        "so that memory.transformer(**model, **plan) fits into 0.9 of the memory at every stage.",
        function(_examine_plan, seconds=60),
        (
            "Try combinations in loops, and return the first that fits.",
            "memory.fullest(memory.transformer(**model, **plan)).total is the fullest stage. Skip "
            "a pipeline that does not divide the layers, and a tensor that does not divide the "
            "heads.",
        ),
        """
from itertools import product

from labkit import memory

def my_plan(model, gpus, device_memory):
    for recompute, tensor, pipeline in product(("none", "selective", "full"), (1, 2, 4, 8),
                                               (1, 2, 4, 8, 16, 32, 64, 128)):
        whole = gpus % (tensor * pipeline) == 0
        if not whole or model["layers"] % pipeline or model["heads"] % tensor:
            continue
        plan = dict(tensor=tensor, pipeline=pipeline, data=gpus // (tensor * pipeline), zero=1,
                    sequence_parallel=True, recompute=recompute)
        if memory.fullest(memory.transformer(**model, **plan)).total <= 0.9 * device_memory:
            return plan
""",
        "Plans that fit are many. Which one is fastest depends on links and bubbles: measure. With "
        "several micro-batches, ZeRO-2 and ZeRO-3 send for each of them.",
        difficulty=3,
    ),
    "21.my_mfu": function_task(
        "Write my_mfu(parameters, layers, hidden, sequence, tokens_per_second, gpus, peak): the "
        "share of the peak FLOP/s that a training uses. A token costs 6 FLOPs per parameter, and "
        "12 × layers × hidden × sequence for attention.",
        [
            (22e9, 48, 6144, 2048, 7447.0, 8, 312e12),
            (175e9, 96, 12288, 2048, 9532.0, 64, 312e12),
            (1e9, 24, 2048, 4096, 40_000.0, 1, 989e12),
        ],
        ("How many FLOPs does a token cost? How many tokens are there in a second?",),
        """
def my_mfu(parameters, layers, hidden, sequence, tokens_per_second, gpus, peak):
    per_token = 6 * parameters + 12 * layers * hidden * sequence
    return per_token * tokens_per_second / (gpus * peak)
""",
        "Only FLOPs that the model needs count: what is recomputed does not.",
        slips=[
            (" + 12 * layers * hidden * sequence", "", "The FLOPs of attention are missing."),
            ("6 * p", "8 * p", "Recomputed FLOPs do not count: 6 for each parameter."),
            ("6 * p", "2 * p", "The backward pass has 4 of the 6 FLOPs."),
        ],
    ),
    "21.days": Task(
        "70 billion parameters, 1.4 trillion tokens, 1,024 GPUs at 400 TFLOP/s each, with full "
        "recomputation (8 FLOPs per parameter and token). How many days of training?",
        number(22.15, "days", within=0.01),
        ("8 × tokens × parameters FLOPs.", "A day has 86,400 seconds."),
        """
flops = 8 * 1.4e12 * 70e9
seconds = flops / (1024 * 400e12)
answer = seconds / 86_400
""",
        "Without recomputation 16.6 days at the same FLOP/s: 6 FLOPs instead of 8.",
        slips={16.61: "Recomputation makes it 8 FLOPs, not 6.", 22_685: "That is one GPU."},
    ),
}
