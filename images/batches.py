"""Global batch and per-replica batch."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "Three rows. One replica, global batch 32: 32 examples on it. Two replicas, global batch "
    "32: 16 examples on each. Two replicas, global batch 64: 32 examples on each and half as "
    "many steps in an epoch."
)


def draw() -> Sketch:
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
