"""The processes of a Horovod job on two machines: which rank, which GPU, which images."""

from __future__ import annotations

from labkit.views.sketch import Sketch

DATA, MODEL, SHARED = 0, 1, 2  # colours
ALT = (
    "A job of four processes on two machines with two GPUs each. Ranks 0 and 1 run on machine 0, "
    "ranks 2 and 3 on machine 1; on each machine the local ranks are 0 and 1, and select GPU 0 and "
    "GPU 1. Each rank reads every fourth image, beginning with its own number. An all-reduce "
    "averages the gradients of all four ranks in each step. Rank 0 alone prints and saves, and "
    "sends its first weights to all."
)


def draw() -> Sketch:
    board = Sketch(
        "Four processes run the same program",
        400,
        "The rank selects the images. The local rank selects the GPU.",
    )
    for machine in range(2):
        board.frame(24 + 386 * machine, 80, 366, 200, f"machine {machine}")
    reduction = board.box(
        24, 320, 752, 44, "all-reduce: the mean of the gradients, in each step", series=SHARED,
        bold=True,
    )  # fmt: skip
    for rank in range(4):
        machine, local = divmod(rank, 2)
        x = 40 + 386 * machine + 172 * local
        images = board.box(
            x, 118, 162, 34, f"images {rank}, {rank + 4}, {rank + 8}, …", series=DATA, hatch=True,
            size=9,
        )  # fmt: skip
        role = "\nprints, saves,\nsends its weights" if rank == 0 else ""
        process = board.box(
            x, 176, 162, 88, f"rank {rank}\nlocal rank {local}: GPU {local}{role}", series=MODEL,
            heavy=rank == 0, size=9,
        )  # fmt: skip
        board.arrow(images.bottom, process.top)
        board.arrow(process.bottom, (process.bottom[0], reduction.y), both=True)
    return board
