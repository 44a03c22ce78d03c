"""Stacked bars, each under its name: bytes on a device, the parts of a step."""

from collections.abc import Callable, Mapping

from labkit.kinds import Kind
from labkit.views.sketch import WIDTH, Sketch

LEFT, TOP, PITCH, HIGH = 24.0, 120.0, 66.0, 28.0


def stacked(
    title: str, subtitle: str, rows: Mapping[str, Mapping[str, float]],
    text: Callable[[float], str], kind: Kind, *, limit: float = 0.0, limit_name: str = "",
) -> Sketch:  # fmt: skip
    """Returns `rows[name][part]` as bars with their amounts, against a dashed `limit`."""
    totals = {name: sum(row.values()) for name, row in rows.items()}
    scale = (WIDTH - LEFT - 104) / max(*totals.values(), limit, 1e-300)
    parts = [part for part in next(iter(rows.values())) if any(row[part] for row in rows.values())]
    legend, x, y = [], LEFT, 85.0
    for part in parts:
        if x + 35 + 7.6 * len(part) > WIDTH:
            x, y = LEFT, y + 20
        legend.append((x, y))
        x += 56 + 7.6 * len(part)
    top = TOP + y - 85
    bottom = top + PITCH * len(rows)
    board = Sketch(title, bottom + (22 if limit else -4), subtitle, kind=kind)
    for series, (part, (x, y)) in enumerate(zip(parts, legend, strict=True)):
        board.box(x, y - 6, 20, 12, series=series, hatch=True, corner=1.5)
        board.text(x + 27, y, part, size=9)
    for number, (name, row) in enumerate(rows.items()):
        x, y = LEFT, top + PITCH * number
        board.text(x, y, name, bold=True, size=9.5)
        for series, part in enumerate(parts):
            wide, words = row[part] * scale, text(row[part])
            if wide >= 1:
                fits = 7 * len(words) + 10 < wide
                board.box(x, y + 13, wide, HIGH, words if fits else "", series=series, hatch=True,
                          size=8.5, corner=min(1.5, wide / 4))  # fmt: skip
            x += wide
        at, words = LEFT + limit * scale, text(totals[name])
        x += 10 if not x < at - 6 < x + 8 * len(words) else at - x + 6  # not across the limit
        board.text(x, y + 13 + HIGH / 2, words, size=9.5)
    if limit:
        x = LEFT + limit * scale
        board.line((x, top - 12), (x, bottom - 8), dashed=True, above=True)
        board.text(x, bottom + 6, limit_name, size=9.5, align="right" if x > 260 else "left")
    return board
