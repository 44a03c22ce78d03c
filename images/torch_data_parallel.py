"""What PyTorch's three forms of data parallelism keep on a device, and what they send."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "Three forms of data parallelism on two GPUs. DataParallel, one process: GPU 0 keeps weights, "
    "gradients and optimizer; in each step it sends weights and half of the batch to GPU 1, which "
    "sends back outputs and gradients. DDP, a process for each GPU: both keep everything, and "
    "all-reduce the gradients. FSDP2: both keep one half of everything, all-gather weights before "
    "each layer, and reduce-scatter gradients."
)
COLUMNS = (
    (
        "DataParallel: one process",
        ("GPU 0\nweights, gradients,\noptimizer", "GPU 1\na copy of the weights\nfor this step"),
        ("weights,\nhalf of the batch", "outputs,\ngradients"),
    ),
    (
        "DDP: a process per GPU",
        (
            "rank 0\nweights, gradients,\noptimizer",
            "rank 1\nthe same weights,\ngradients, optimizer",
        ),
        ("all-reduce\nof the gradients",),
    ),
    (
        "FSDP2: a process per GPU",
        ("rank 0\none half of weights,\ngradients, optimizer", "rank 1\nthe other half"),
        ("all-gather weights,\nreduce-scatter\ngradients",),
    ),
)


def draw() -> Sketch:
    board = Sketch(
        "Data parallelism in PyTorch, three times",
        384,
        "What a device keeps, and what is sent in a step. Each device has its half of the batch.",
    )
    for column, (name, devices, words) in enumerate(COLUMNS):
        x = 24 + 256 * column
        board.frame(x, 80, 240, 284, name)
        top, bottom = (
            board.box(x + 20, y, 200, 72, text, series=number, hatch=True, size=9.5)
            for number, (y, text) in enumerate(zip((112, 272), devices, strict=True))
        )
        if len(words) == 2:
            for share, text, (start, end) in zip(
                (0.08, 0.66), words, ((top, bottom), (bottom, top)), strict=True
            ):
                across = x + 20 + 200 * share
                ends = [(across, (one.y + 72) if one is top else one.y) for one in (start, end)]
                board.arrow(*ends, text, beside=True)
        else:
            board.arrow(
                (x + 60, top.bottom[1]), (x + 60, bottom.top[1]), words[0], both=True, beside=True
            )
    return board
