"""Diagrams of one training step: on one device, on two replicas, and what is kept twice."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.figure import OKABE_ITO
from labkit.views.parallelism import FIRST, SHARED
from labkit.views.sketch import Diagram, Sketch

__all__ = ["diagrams"]


def one_step() -> Sketch:
    board = Sketch(
        "One training step on one device",
        330,
        "A batch goes forward, the error goes backward, the weights move a little.",
    )
    board.frame(164, 80, 612, 216, "device 0")
    batch = board.box(24, 124, 100, 64, "batch", series=FIRST)
    names = ("forward", "loss", "backward", "update")
    boxes = [
        board.box(188 + 152 * i, 124, 108, 64, name, bold=True) for i, name in enumerate(names)
    ]
    stops = [batch, *boxes]
    for before, after, word in zip(
        stops, stops[1:], ("", "logits", "error", "gradient"), strict=False
    ):
        board.arrow(before.right, after.left)
        if word:
            middle = (before.right[0] + after.left[0]) / 2
            board.text(middle, 112, word, size=8.5, align="center")
    weights = board.box(188, 232, 564, 44, "weights", series=SHARED)
    for index, box in enumerate(boxes):
        if index in (0, 2):
            board.arrow((box.bottom[0], weights.y), box.bottom, "read", beside=True)
        elif index == 3:
            board.arrow(box.bottom, (box.bottom[0], weights.y), "write", beside=True)
    return board


def one_device_works() -> Sketch:
    board = Sketch(
        "Without a strategy, one device works",
        316,
        "TensorFlow sees both devices and places everything that it can on the first.",
    )
    program = board.box(24, 138, 132, 76, "your program,\nno strategy")
    board.frame(236, 80, 540, 92, "device 0")
    board.frame(236, 188, 540, 92, "device 1", dashed=True)
    board.text(
        262, 236, "no work (on a GPU its memory is taken all the same)", size=9.5, faint=True
    )
    for index in range(5):
        board.box(262 + 100 * index, 114, 88, 40, f"step {index + 1}", series=FIRST, size=9)
    board.arrow(program.at(1, 0.3), (196, program.at(1, 0.3)[1]), (196, 134), (262, 134))
    board.line(
        program.at(1, 0.7), (196, program.at(1, 0.7)[1]), (196, 236), (236, 236), dashed=True
    )
    board.text(752, 236, "idle", bold=True, align="right", color=OKABE_ITO["vermillion"])
    return board


def mirrored_step() -> Sketch:
    board = Sketch(
        "One step of MirroredStrategy",
        392,
        "Scatter the batch, compute on each replica, all-reduce the gradients, update alike.",
    )
    columns = ((24, 108), (176, 100), (320, 100), (464, 140), (648, 128))
    heads = ("1 scatter", "2 forward", "3 backward", "4 all-reduce", "5 update")
    for (x, width), head in zip(columns, heads, strict=True):
        board.text(x + width / 2, 92, head, bold=True, align="center")
    shared = board.box(464, 112, 140, 240, "average\nof gradients\n0 and 1", series=SHARED)
    for number, y in enumerate((112, 256)):
        words = ("half of the\nbatch", f"replica {number}\nloss", f"replica {number}\ngradient")
        stops = [
            board.box(x, y, width, 96, word, series=number, hatch=True, size=9.5)
            for (x, width), word in zip(columns, words, strict=False)
        ]
        update = board.box(
            648, y, 128, 96, f"replica {number}\nsame new\nweights", series=SHARED, size=9.5
        )
        for before, after in pairwise(stops):
            board.arrow(before.right, after.left)
        level = update.left[1]
        board.arrow(stops[-1].right, (shared.x, level))
        board.arrow((shared.right[0], level), update.left)
    return board


def batches() -> Sketch:
    board = Sketch(
        "Global batch and per-replica batch",
        372,
        "The dataset is cut into global batches. The strategy cuts each of them once more.",
    )
    left, wide = 136, 646
    plans = (
        ("1 replica", (32,), "32 examples on the one replica"),
        ("2 replicas", (16, 16), "16 on each: the same step, shared out"),
        ("2 replicas", (32, 32), "32 on each: half as many steps in an epoch, a larger batch"),
    )
    for row, (who, parts, note) in enumerate(plans):
        y = 86 + 92 * row
        board.text(24, y + 13, who, bold=True)
        board.text(24, y + 34, f"global {sum(parts)}", size=9.5, faint=True)
        for number, part in enumerate(parts):
            x = left + wide * number * part / 64
            board.box(
                x, y, wide * part / 64 - 6, 44, f"{part} on replica {number}",
                series=number, hatch=True, size=9.5, corner=3,
            )  # fmt: skip
        board.text(left, y + 60, note, size=9.5, faint=True)
    return board


def mirrored_variable() -> Sketch:
    board = Sketch(
        "A mirrored variable",
        330,
        "One variable for you, one copy on every replica, kept equal by equal updates.",
    )
    yours = board.box(24, 142, 160, 88, "kernel\n784 × 128", bold=True)
    board.text(104, 254, "what you see", size=9.5, faint=True, align="center")
    for number, y in enumerate((80, 196)):
        board.frame(264, y, 512, 100, f"replica {number}")
        copy = board.box(288, y + 36, 148, 44, f"copy {number}", series=number, hatch=True)
        after = board.box(
            604, y + 36, 148, 44, f"copy {number}, one step on", series=number, hatch=True, size=8.5
        )
        board.arrow(copy.right, after.left, "minus the same step")
        board.line(
            yours.at(1, 0.3 + 0.4 * number),
            (224, yours.at(1, 0.3 + 0.4 * number)[1]),
            (224, y + 58),
            copy.left,
        )
    return board


def diagrams() -> dict[str, Diagram]:
    """The pictures of this file for the folder of images."""
    return {
        "one_step": Diagram(
            "02",
            one_step,
            "One training step on one device: a batch goes through forward, loss, backward and "
            "update. Forward and backward read the weights; update writes them.",
        ),
        "one_device_works": Diagram(
            "02",
            one_device_works,
            "A program without a strategy on a machine with two devices: all five steps run on "
            "device 0, while device 1 is idle, although TensorFlow may have taken its memory.",
        ),
        "mirrored_step": Diagram(
            "03",
            mirrored_step,
            "One step of MirroredStrategy in five columns. 1 scatter: each replica gets half of "
            "the batch. 2 forward: each computes its loss. 3 backward: each computes its "
            "gradient. 4 all-reduce: both gradients are averaged. 5 update: both make the same "
            "new weights.",
        ),
        "batches": Diagram(
            "03",
            batches,
            "Three rows. One replica, global batch 32: 32 examples on it. Two replicas, global "
            "batch 32: 16 examples on each. Two replicas, global batch 64: 32 examples on each "
            "and half as many steps in an epoch.",
        ),
        "mirrored_variable": Diagram(
            "03",
            mirrored_variable,
            "A mirrored variable: one kernel of 784 by 128 as you see it, with copy 0 on "
            "replica 0 and copy 1 on replica 1. In a step the same amount is subtracted from "
            "both copies.",
        ),
    }
