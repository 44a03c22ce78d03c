"""Boards that set programs beside each other, or show who talks to whom: counted from traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.views.cells import ink_on, rank_color
from labkit.views.collective_figure import COUNTED
from labkit.views.figure import tint
from labkit.views.sketch import Box, Sketch

__all__ = ["bytes_per_rank", "two_levels", "two_trees", "work_by_ranks"]

SENT, RECEIVED = 0, 1


def bytes_per_rank(traces: Sequence[Any], title: str, subtitle: str) -> Sketch:
    """What each rank sends and receives, in buffers, for two programs on the same data."""
    board = Sketch(title, 150 + 34 * traces[0].ranks + 16, subtitle, kind=COUNTED)
    for left, word, series in ((24, "sends", SENT), (112, "receives", RECEIVED)):
        board.box(left, 79, 20, 12, series=series, hatch=True, corner=1.5)
        board.text(left + 27, 85, word, size=9)
    most = max(max(*t.bytes_sent, *t.bytes_received) / _buffer(t) for t in traces)
    for number, trace in enumerate(traces):
        x = 24.0 + 404 * number
        board.text(x, 122, trace.program, size=9.5, bold=True)
        for rank in range(trace.ranks):
            y = 142.0 + 34 * rank
            _chip(board, Box(x, y + 1, 30, 24), rank)
            amounts = (trace.bytes_sent[rank], trace.bytes_received[rank])
            for place, (amount, series) in enumerate(zip(amounts, (SENT, RECEIVED), strict=True)):
                wide = 280 * amount / _buffer(trace) / most
                board.box(
                    x + 38, y + 13.5 * place, wide, 12.5, series=series, hatch=True,
                    corner=min(1.5, wide / 4),
                )  # fmt: skip
            end = x + 38 + 280 * max(amounts) / _buffer(trace) / most
            board.text(end + 8, y + 13, _times(max(amounts) / _buffer(trace)), size=9)
    return board


def work_by_ranks(traces: Mapping[str, Sequence[Any]], title: str, subtitle: str) -> Sketch:
    """Steps, and what the busiest rank sends, for programs on more and more ranks."""
    names, counts = list(traces), [t.ranks for t in next(iter(traces.values()))]
    pitch = 14 * len(names) + 12
    board = Sketch(title, 150 + pitch * len(counts) + 12, subtitle, kind=COUNTED)
    for series, name in enumerate(names):
        x = 24.0 + 170 * series
        board.box(x, 79, 20, 12, series=series, hatch=True, corner=1.5)
        board.text(x + 27, 85, name, size=9)
    panels: tuple[tuple[str, Callable[[Any], float], Callable[[float], str]], ...] = (
        ("steps, one after the other", lambda t: t.steps, lambda v: f"{v:g}"),
        ("the busiest rank sends", lambda t: max(t.bytes_sent) / _buffer(t), _times),
    )
    for number, (head, value, text) in enumerate(panels):
        x = 24.0 + 388 * number
        board.text(x, 122, head, size=9.5, bold=True)
        most = max(value(t) for each in traces.values() for t in each)
        for row, ranks in enumerate(counts):
            y = 142.0 + pitch * row
            board.text(x, y + 7 * len(names), f"{ranks} ranks", size=9)
            for series, name in enumerate(names):
                amount = value(traces[name][row])
                wide = max(1.0, 240 * amount / most)
                at = y + 14 * series
                board.box(
                    x + 66, at, wide, 12.5, series=series, hatch=True, corner=min(1.5, wide / 4)
                )
                board.text(x + 74 + wide, at + 6.5, text(amount), size=8.5)
    return board


def two_trees(trace: Any, title: str, subtitle: str) -> Sketch:
    """The way up in both trees of a double binary tree: a child's arrow ends at its parent."""
    up = [m for m in trace.messages if m.into is None]
    trees = [{(m.source, m.dest) for m in up if m.tag == tag} for tag in (0, 1)]
    depths = [_depths(edges, trace.ranks) for edges in trees]
    pitch, top = 62.0, 112.0
    foot = top + pitch * (max(max(d) for d in depths) + 1)
    board = Sketch(title, foot + 20, subtitle, kind=COUNTED)
    board.text(
        24, foot, "Arrows: the way up. The totals come down the same way.", size=9, faint=True
    )
    for number, (edges, depth) in enumerate(zip(trees, depths, strict=True)):
        x = 24.0 + 392 * number
        board.text(x, 88, f"tree {number}: the {('first', 'second')[number]} half", size=9.5,
                   bold=True)  # fmt: skip
        place = {
            rank: Box(x + 45.0 * ((rank + number) % trace.ranks), top + pitch * level, 34, 34)
            for rank, level in enumerate(depth)
        }
        for rank, box in place.items():
            _chip(board, box, rank)
        for source, dest in sorted(edges):
            start, end = place[source], place[dest]
            side = end.left if start.x < end.x else end.right
            board.arrow(start.top, (start.top[0], side[1]), side)
    return board


def two_levels(trace: Any, flat: Any, per_node: int, title: str, subtitle: str) -> Sketch:
    """The three phases of a two-level all-reduce on two nodes, and what crosses between them."""
    board = Sketch(title, 390, subtitle, kind=COUNTED)
    inside = [m for m in trace.messages if m.source // per_node == m.dest // per_node]
    phases = (
        ("1 reduce-scatter inside", [m for m in inside if m.into is None]),
        ("2 all-reduce between", [m for m in trace.messages if m not in inside]),
        ("3 all-gather inside", [m for m in inside if m.into is not None]),
    )
    for number, (name, messages) in enumerate(phases):
        x = 24.0 + 258 * number
        board.text(x + 118, 92, name, size=10, bold=True, align="center")
        place = {}
        for node in range(trace.ranks // per_node):
            y = 112.0 + 128 * node
            frame = board.frame(x, y, 236, 90, "")
            board.text(x + 12, y + 35, f"node\n{node}", size=9, faint=True, inside=frame)
            for seat in range(per_node):
                rank = node * per_node + seat
                place[rank] = Box(x + 54 + 46.0 * seat, y + 18, 32, 34)
                _chip(board, place[rank], rank)
        links: dict[tuple[int, int], int] = {}
        for one in messages:
            links[one.source, one.dest] = links.get((one.source, one.dest), 0) + one.nbytes
        for source, dest in links:
            _link(board, place[source], place[dest], both=(dest, source) in links)
        each = max(links.values()) / _buffer(trace)
        way = "each way" if number == 1 else "on each arrow"
        board.text(x + 118, 350, f"{_times(each)} {way}", size=9, align="center")
    crossing = [_crossing(one, per_node) / _buffer(one) for one in (trace, flat)]
    board.text(
        24, 376, f"Out of each node, in all: {_times(crossing[0])}. With one flat ring over all "
        f"ranks: {_times(crossing[1])}, on a single link.", size=9, faint=True,
    )  # fmt: skip
    return board


def _crossing(trace: Any, per_node: int) -> float:
    """The most bytes that leave a node."""
    out: dict[int, int] = {}
    for (source, dest), nbytes in trace.links().items():
        if source // per_node != dest // per_node:
            out[source // per_node] = out.get(source // per_node, 0) + nbytes
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


def _depths(edges: set[tuple[int, int]], ranks: int) -> list[int]:
    parent = dict(edges)
    depths = []
    for rank in range(ranks):
        depth, at = 0, rank
        while at in parent:
            depth, at = depth + 1, parent[at]
        depths.append(depth)
    return depths


def _chip(board: Sketch, box: Box, rank: int) -> None:
    color = rank_color(rank)
    board.box(box.x, box.y, box.width, box.height, fill=tint(color, 0.75), corner=3)
    board.text(
        *box.middle, str(rank), size=9.5, bold=True, align="center", inside=box,
        color=ink_on(rank),
    )  # fmt: skip


def _buffer(trace: Any) -> int:
    """Bytes of one rank's buffer."""
    return int(trace.inputs[0].nbytes)


def _times(buffers: float) -> str:
    return "1 buffer" if buffers == 1 else f"{buffers:.2f} buffers".replace(".00 ", " ")
