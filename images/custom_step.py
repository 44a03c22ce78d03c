"""One step of a custom training loop on two replicas."""

from __future__ import annotations

from labkit.views.sketch import Sketch

SHARED = 2  # the colour of what is the same on both replicas
ALT = (
    "One step of a custom training loop. Replica 0 and replica 1 each sum the gradients of four "
    "micro-batches. Then one all-reduce sums them over the replicas, the sum is clipped by its "
    "global norm, and both replicas make the same update with the scheduled learning rate."
)


def draw() -> Sketch:
    board = Sketch(
        "One step of a custom training loop on two replicas",
        330,
        "Sum over the micro-batches, sum over the replicas, clip the sum, update once.",
    )
    boxes = []
    for replica in (0, 1):
        y = 84 + 112 * replica
        board.frame(24, y, 376, 96, f"replica {replica}")
        for part in range(4):
            board.box(
                40 + 54 * part, y + 36, 46, 42, f"b{4 * replica + part}", series=replica, size=9.5
            )
        total = board.box(294, y + 36, 92, 42, "gradients", series=replica, size=9.5)
        board.arrow((252, y + 57), total.left)
        board.text(273, y + 42, "sum", size=8.5, align="center")
        boxes.append(total)
    reduced = board.box(424, 158, 88, 72, "all-reduce", series=SHARED, bold=True, size=9.5)
    for total, down in zip(boxes, (0.25, 0.75), strict=True):
        board.arrow((400, total.right[1]), (412, total.right[1]), (412, 158 + 72 * down),
                    (424, 158 + 72 * down))  # fmt: skip
        board.line(total.right, (400, total.right[1]))
    clip = board.box(540, 158, 96, 72, "clip by\nglobal norm", series=SHARED, size=9.5)
    update = board.box(664, 158, 96, 72, "update", series=SHARED, bold=True, size=9.5)
    board.arrow(reduced.right, clip.left)
    board.arrow(clip.right, update.left)
    rate = board.box(652, 84, 120, 40, "learning rate", size=9.5)
    board.arrow(rate.bottom, update.top)
    board.text(592, 258, "b0 to b7: micro-batches", size=9.5, faint=True, align="center")
    return board
