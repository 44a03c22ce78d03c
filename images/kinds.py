"""Every number says where it comes from."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "Three cards. Measured: on this machine, just now; a second run differs a little. "
    "Recorded: elsewhere or earlier; it names the machine and the day. Modelled: computed by a "
    "formula, not timed; it names the formula."
)


def draw() -> Sketch:
    board = Sketch(
        "Every number says where it comes from",
        318,
        "Look for one of these three words under each table and in the corner of each picture.",
    )
    cards = (
        ("measured", 0, "on this machine, just now", "A second run\ndiffers a little."),
        ("recorded", 1, "elsewhere or earlier", "It names the machine\nand the day."),
        ("modelled", 2, "by a formula", "Computed, not timed.\nIt names the formula."),
    )
    examples = (
        "“measured on\n2 logical CPUs”",
        "“recorded on NVIDIA\nH200, 2026-11-21”",
        "“modelled: 4 bytes\nper parameter”",
    )
    for column, ((name, series, source, advice), example) in enumerate(
        zip(cards, examples, strict=True)
    ):
        x = 24 + 258 * column
        card = board.box(x, 80, 236, 208, fill="white", series=series)
        head = board.box(x, 80, 236, 46, name, series=series, hatch=True, bold=True, size=12)
        board.text(head.middle[0], 150, source, align="center", bold=True, size=9.5, inside=card)
        board.text(head.middle[0], 190, advice, align="center", size=9.5, inside=card)
        board.line((x + 24, 222), (x + 212, 222), color="#D5D8DC")
        board.text(head.middle[0], 254, example, align="center", size=9.5, faint=True, inside=card)
    return board
