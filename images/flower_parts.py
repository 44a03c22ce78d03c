"""The parts of Flower: which program runs where."""

from __future__ import annotations

from labkit.views.sketch import Sketch

YOURS, FLOWERS = 0, 4  # colours
ALT = (
    "The parts of Flower. In the middle the SuperLink, a server process. Your ServerApp with its "
    "strategy sends and receives messages through it. On each of three sites a SuperNode connects "
    "to the SuperLink and calls your ClientApp, which reads the examples of its site. ServerApp "
    "and ClientApp are yours; SuperLink and SuperNodes are Flower's."
)


def draw() -> Sketch:
    board = Sketch(
        "Flower: two parts are yours, two are Flower's",
        400,
        "Sites open connections to the SuperLink; no connection leads to a site.",
    )
    server = board.box(
        24, 84, 224, 56, "your ServerApp\nwith its strategy", series=YOURS, hatch=True, size=9.5
    )
    link = board.box(340, 84, 436, 56, "SuperLink\na server process", series=FLOWERS, size=9.5)
    board.arrow(server.right, link.left, "messages", both=True)
    for number, x in enumerate((24.0, 288.0, 552.0)):
        board.frame(x, 200, 224, 180, f"site {number}")
        node = board.box(x + 20, 232, 184, 34, "SuperNode", series=FLOWERS, size=9.5)
        app = board.box(x + 20, 286, 184, 34, "your ClientApp", series=YOURS, hatch=True, size=9.5)
        board.arrow(node.bottom, app.top, both=True)
        board.arrow(node.top, link.at((0.15, 0.5, 0.85)[number], 1))
        board.box(x + 20, 338, 184, 30, "its examples", size=9.5)
    return board
