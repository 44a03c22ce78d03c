"""Times of all-reduces: measured beside a model, and of gradients in buckets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.kinds import bytes_text, percent_text, seconds_text
from labkit.views.figure import (
    FAINT,
    Picture,
    figure,
    legend_below,
    look,
    picture,
    style,
)  # fmt: skip
from labkit.views.lanes import RIGHT, Bar, BarStyle, Lanes, width_of
from labkit.views.sketch import WIDTH, Sketch

if TYPE_CHECKING:
    from labkit.collectives.bench import Bench, Fit
    from labkit.collectives.costs import Overlap

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def times(bench: Bench, fits: Mapping[str, Fit]) -> Picture:
    """Returns a picture: measured dots and modelled lines above, model / measured below."""
    title = f"all-reduce by {bench.ranks} ranks"
    each = "; ".join(
        f"{name}: {fit.numbers[0]} latency, {fit.numbers[1]}, half of the "
        f"medians within {percent_text(fit.typical)} of the line"
        for name, fit in fits.items()
    )
    alt = f"Time of {title} by size, measured, with fitted lines. {each}."
    with style():
        chart = figure(8, 6.6)
        above, below = chart.subplots(2, 1, sharex=True, height_ratios=(3, 1.2))
        for index, (name, fit) in enumerate(fits.items()):
            like = look(index)
            sizes, measured, modelled = zip(*fit.times, strict=True)
            above.plot(
                sizes, modelled, color=like.color, linestyle=like.dash, linewidth=1.3, marker="none"
            )
            above.plot(
                sizes, measured, like.marker, color=like.color, markersize=5, linestyle="none",
                label=name,
            )  # fmt: skip
            ratios = [model / time for _, time, model in fit.times]
            below.plot(sizes, ratios, like.marker, color=like.color, markersize=4, linestyle="none")
        above.set(xscale="log", yscale="log", ylabel="time of a call")
        above.set_title(f"{title}: dots measured, lines fitted")
        legend_below(chart, above)
        above.yaxis.set_major_formatter(lambda value, _: _round(seconds_text(value)))
        below.set(xlabel="bytes in each rank's buffer", ylabel="model / measured", yscale="log")
        below.axhline(1, color=FAINT, linewidth=0.8, marker="none")
        # A model that is right must look right: the axis never zooms in on a few per cent.
        low, high = below.get_ylim()
        low, high = min(low, 0.4), max(high, 2.5)
        below.set_ylim(low, high)
        below.set_yticks([tick for tick in _RATIOS if low < tick < high])
        below.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        below.xaxis.set_major_formatter(lambda value, _: _round(bytes_text(value)))
        above.minorticks_off()
        below.minorticks_off()
        return picture(chart, alt, bench.kind)


def _round(text: str) -> str:
    """Ticks are round numbers: "1.00 µs" is "1 µs"."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def buckets(plan: Overlap) -> Picture:
    """Returns a picture of one schedule."""
    return buckets_board({"": plan}).picture(
        f"Backward pass and all-reduces over time. {len(plan.buckets)} all-reduces, "
        f"{seconds_text(plan.seconds)} in all, {seconds_text(plan.exposed)} of it after the "
        "backward pass."
    )


def buckets_board(plans: Mapping[str, Overlap]) -> Sketch:
    """Returns a board of schedules below each other on one axis of time."""
    names: list[str] = []
    bars: list[Bar] = []
    for name, plan in plans.items():
        lane, layers = len(names), len(plan.backward)
        names += [name, "backward", "all-reduce"]
        for number, (start, end) in enumerate(plan.backward):
            word = f"{layers - number}"
            bars.append(Bar(lane + 1, "backward", start, end, (word,)))
        for one in plan.buckets:
            high, low = layers - one.first, layers - one.last
            word = f"{high}" if high == low else f"{high}–{low}"
            words = (f"layers {word}", word)
            bars.append(Bar(lane + 2, "all-reduce", one.start, one.end, words))
    states = {"backward": BarStyle("", 0), "all-reduce": BarStyle("", 2)}
    lanes = Lanes(
        "Gradients leave while the backward pass runs",
        "The backward pass works on the last layer first. What it has finished can travel.",
        bars, states, names, next(iter(plans.values())).kind, high=34,
    )  # fmt: skip
    for number, plan in enumerate(plans.values()):
        x, y = lanes.x(plan.backward[-1][1]), lanes.y(3 * number + 1)
        lanes.board.line((x, y - 6), (x, y + 2.1 * lanes.high), dashed=True, above=True)
        said = f"{seconds_text(plan.exposed)} after it, {seconds_text(plan.seconds)} in all"
        if x + 10 + width_of(said, 9) < WIDTH - RIGHT:
            lanes.board.text(x + 10, y + 0.44 * lanes.high, said, size=9)
        else:  # beside the heading
            lanes.board.text(WIDTH - RIGHT, y - 0.56 * lanes.high, said, size=9, align="right")
    return lanes.board
