"""Bytes that each rank sends and receives: naive against ring all-reduce."""

from __future__ import annotations

from _operation import buffer_bytes, buffers_text, ran, rank_chip

from labkit.collectives.page.still import COUNTED
from labkit.views.sketch import Box, Sketch

ALT = (
    "What 8 ranks send and receive. With naive_all_reduce rank 0 sends 7 buffers and receives "
    "7, every other rank 1. With ring_all_reduce every rank sends 1.75 buffers and receives "
    "1.75."
)
RANKS = 8
SENT, RECEIVED = 0, 1  # their colours


def draw() -> Sketch:
    traces = [ran(name, RANKS, 64) for name in ("naive_all_reduce", "ring_all_reduce")]
    board = Sketch(
        "Traffic at rank 0 grows with the number of ranks",
        166 + 34 * RANKS,
        "Eight ranks, the same result. One buffer is what each rank wants to have summed.",
        kind=COUNTED,
    )
    for left, word, series in ((24, "sends", SENT), (112, "receives", RECEIVED)):
        board.box(left, 79, 20, 12, series=series, hatch=True, corner=1.5)
        board.text(left + 27, 85, word, size=9)
    most = max(max(*t.bytes_sent, *t.bytes_received) / buffer_bytes(t) for t in traces)
    for number, trace in enumerate(traces):
        x = 24.0 + 404 * number
        board.text(x, 122, trace.program, size=9.5, bold=True)
        for rank in range(RANKS):
            y = 142.0 + 34 * rank
            rank_chip(board, Box(x, y + 1, 30, 24), rank)
            amounts = [
                amount[rank] / buffer_bytes(trace)
                for amount in (trace.bytes_sent, trace.bytes_received)
            ]
            for series, amount in enumerate(amounts):
                wide = 280 * amount / most
                board.box(
                    x + 38, y + 13.5 * series, wide, 12.5, series=series, hatch=True,
                    corner=min(1.5, wide / 4),
                )  # fmt: skip
            end = x + 38 + 280 * max(amounts) / most
            board.text(end + 8, y + 13, buffers_text(max(amounts)), size=9)
    return board
