"""Federated averaging."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "One round of federated averaging. A server sends the weights to three sites. Each site has "
    "its own examples, 300, 120 and 60 of them, and trains on them for some local epochs. The "
    "trained weights and the number of examples go back to the server, which averages. The "
    "examples do not leave their site."
)

SHARED = 2  # the colour of what all have in common


def draw() -> Sketch:
    board = Sketch(
        "One round of federated averaging",
        430,
        "Weights travel. Examples stay where they are.",
    )
    server = board.box(
        210, 82, 380, 62, "server: weights, and their average\nweighted by the number of examples",
        series=SHARED, bold=True, size=9.5,
    )  # fmt: skip
    for number, (x, count) in enumerate(zip((24.0, 288.0, 552.0), (300, 120, 60), strict=True)):
        board.frame(x, 226, 224, 180, f"site {number}")
        trains = board.box(x + 20, 264, 184, 50, "trains the weights\nfor E local epochs", size=9.5)
        examples = board.box(
            x + 20, 346, 184, 42, f"{count} examples", series=(0, 1, 4)[number], hatch=True,
            size=9.5,
        )  # fmt: skip
        board.arrow(examples.top, trains.bottom)
        board.arrow(server.at((0.08, 0.442, 0.804)[number], 1), trains.at(0.38, 0))
        board.arrow(trains.at(0.62, 0), server.at((0.196, 0.558, 0.92)[number], 1))
    board.text(110, 180, "weights", size=9)
    board.text(776, 176, "trained weights,\nnumber of examples", size=9, align="right")
    return board
