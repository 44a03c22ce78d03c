"""All-reduce in two levels: inside each node first, then between nodes."""

from __future__ import annotations

from collections import Counter

from _operation import buffer_bytes, buffers_text, ran, rank_chip

from labkit.collectives import Trace
from labkit.collectives.page.still import COUNTED
from labkit.views.sketch import Box, Sketch

ALT = (
    "All-reduce on two nodes of 4 ranks in three phases. 1, reduce-scatter in a ring inside "
    "each node: 0.75 buffers on each arrow. 2, all-reduce between ranks 0 and 4, 1 and 5, 2 and "
    "6, 3 and 7: 0.25 buffers each way. 3, all-gather in a ring inside each node: 0.75 buffers "
    "on each arrow. Out of each node goes 1 buffer in all; with one flat ring over all ranks, "
    "1.75 buffers on a single link."
)
RANKS, PER_NODE = 8, 4


def draw() -> Sketch:
    trace = ran("hierarchical_all_reduce", RANKS, 64, per_node=PER_NODE)
    flat = ran("ring_all_reduce", RANKS, 64)
    board = Sketch(
        "All-reduce in two levels",
        390,
        "Links inside a node are fast, those between nodes slow. So add up inside first.",
        kind=COUNTED,
    )
    inside = [m for m in trace.messages if m.source // PER_NODE == m.dest // PER_NODE]
    phases = (
        ("1 reduce-scatter inside", [m for m in inside if m.into is None], "on each arrow"),
        ("2 all-reduce between", [m for m in trace.messages if m not in inside], "each way"),
        ("3 all-gather inside", [m for m in inside if m.into is not None], "on each arrow"),
    )
    for number, (name, messages, way) in enumerate(phases):
        x = 24.0 + 258 * number
        board.text(x + 118, 92, name, size=10, bold=True, align="center")
        seats = {}
        for rank in range(RANKS):
            node, seat = divmod(rank, PER_NODE)
            y = 112.0 + 128 * node
            if seat == 0:
                frame = board.frame(x, y, 236, 90, "")
                board.text(x + 12, y + 35, f"node\n{node}", size=9, faint=True, inside=frame)
            seats[rank] = Box(x + 54 + 46.0 * seat, y + 18, 32, 34)
            rank_chip(board, seats[rank], rank)
        links: Counter[tuple[int, int]] = Counter()
        for one in messages:
            links[one.source, one.dest] += one.nbytes
        for source, dest in links:
            _link(board, seats[source], seats[dest], both=(dest, source) in links)
        each = buffers_text(max(links.values()) / buffer_bytes(trace))
        board.text(x + 118, 350, f"{each} {way}", size=9, align="center")
    two, one_ring = (buffers_text(_out_of_a_node(t) / buffer_bytes(t)) for t in (trace, flat))
    board.text(
        24, 376, f"Out of each node, in all: {two}. With one flat ring over all ranks: {one_ring}, "
        "on a single link.", size=9, faint=True,
    )  # fmt: skip
    return board


def _out_of_a_node(trace: Trace) -> int:
    """The most bytes that leave a node."""
    out: Counter[int] = Counter()
    for message in trace.messages:
        if message.source // PER_NODE != message.dest // PER_NODE:
            out[message.source // PER_NODE] += message.nbytes
    return max(out.values())


def _link(board: Sketch, start: Box, end: Box, *, both: bool) -> None:
    """Neighbours directly, others in a bow below, nodes straight up and down."""
    if start.y != end.y:
        if start.y < end.y or not both:
            points = (start.bottom, end.top) if start.y < end.y else (start.top, end.bottom)
            board.arrow(*points, both=both)
    elif 0 < end.x - start.x < 60:
        board.arrow(start.right, end.left)
    else:
        low = start.y + start.height + 18
        board.arrow(start.bottom, (start.bottom[0], low), (end.bottom[0], low), end.bottom)
