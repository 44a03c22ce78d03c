"""Times of all-reduces: measured beside a model, modelled with crossovers, buckets over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.kinds import bytes_text, percent_text, seconds_text
from labkit.views.figure import (
    FAINT,
    INK,
    OKABE_ITO,
    Picture,
    figure,
    legend_below,
    look,
    picture,
    style,
)  # fmt: skip
from labkit.views.sketch import WIDTH, Sketch

__all__ = ["buckets", "buckets_board", "costs", "times"]

_LEFT, _TOP, _PITCH, _LANE = 104.0, 92.0, 112.0, 30.0
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def times(bench: Any, fits: Mapping[str, Any]) -> Picture:
    """Above, dots measured and lines modelled; below, how many times the measured is modelled."""
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
        above.yaxis.set_major_formatter(lambda value, _: seconds_text(value))
        below.set(xlabel="bytes in each rank's buffer", ylabel="model / measured", yscale="log")
        below.axhline(1, color=FAINT, linewidth=0.8, marker="none")
        # A model that is right must look right: the axis never zooms in on a few per cent.
        low, high = below.get_ylim()
        low, high = min(low, 0.4), max(high, 2.5)
        below.set_ylim(low, high)
        below.set_yticks([tick for tick in _RATIOS if low < tick < high])
        below.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        below.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
        above.minorticks_off()
        below.minorticks_off()
        return picture(chart, alt, bench.kind)


def costs(shown: Any) -> Picture:
    """A line for each algorithm by message size or rank count; both axes grow by factors."""
    with style():
        chart = figure(8, 4.6)
        by_size = shown.by == "bytes"
        axes = chart.add_subplot(
            xlabel="size of each rank's buffer" if by_size else "number of ranks, doubling",
            ylabel="time",
        )
        axes.set(xscale="log", yscale="log", title=shown.title)
        for i, (name, seconds) in enumerate(shown.seconds.items()):
            every = (4 * i % 7, 8) if by_size else None
            axes.plot(shown.along, seconds, label=_short(name), markevery=every, **look(i).line)
        for mark in shown.crossovers:
            axes.axvline(mark.at, color=FAINT, linewidth=1, linestyle=":", zorder=0, marker="")
            axes.plot(
                [mark.at], [mark.seconds], "o", color="white", markeredgecolor=INK, markersize=9,
                markeredgewidth=1.6, zorder=5,
            )  # fmt: skip
            axes.annotate(
                f"{_short(mark.faster)}\nfrom {shown.position(mark.at)} on",
                (mark.at, mark.seconds),
                xytext=(9, -12), textcoords="offset points", va="top", size=9, color=INK,
            )  # fmt: skip
        _label_axes(axes, shown, by_size)
        legend_below(chart, axes)
        return picture(chart, _alt(shown), shown.kind)


def _label_axes(axes: Any, shown: Any, by_size: bool) -> None:
    from matplotlib.ticker import LogLocator

    axes.minorticks_off()
    axes.xaxis.set_major_locator(LogLocator(base=10 if by_size else 2, numticks=12))
    axes.xaxis.set_major_formatter(
        lambda value, _: _round(bytes_text(value)) if by_size else f"{value:,.0f}"
    )
    axes.yaxis.set_major_formatter(lambda value, _: _round(seconds_text(value)))
    axes.set_xlim(shown.along[0], shown.along[-1])
    # Below the lowest line is the space for the words at the marks.
    axes.set_ylim(bottom=axes.get_ylim()[0] / 3)


def _round(text: str) -> str:
    """Ticks are round numbers: "1.00 µs" is "1 µs"."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _short(name: str) -> str:
    return name.replace("_all_reduce", "").replace("_", " ")


def _alt(shown: Any) -> str:
    first, last = shown.position(shown.along[0]), shown.position(shown.along[-1])
    ends = ", ".join(
        f"{_short(name)} {seconds_text(times[0])} and {seconds_text(times[-1])}"
        for name, times in shown.seconds.items()
    )
    return f"{shown!r} At {first} and {last}: {ends}."


def buckets(plan: Any) -> Picture:
    """One schedule."""
    return buckets_board({"": plan}).picture(
        f"Backward pass and all-reduces over time. {len(plan.buckets)} all-reduces, "
        f"{seconds_text(plan.seconds)} in all, {seconds_text(plan.exposed)} of it after the "
        "backward pass."
    )


def buckets_board(plans: Mapping[str, Any]) -> Sketch:
    """Schedules below each other on one axis of time, each under its name."""
    longest = max(plan.seconds for plan in plans.values())
    board = Sketch(
        "Gradients leave while the backward pass runs",
        _TOP + _PITCH * len(plans),
        "The backward pass works on the last layer first. What it has finished can travel.",
        kind=next(iter(plans.values())).kind,
    )
    scale = (WIDTH - _LEFT - 98) / longest
    for row, (name, plan) in enumerate(plans.items()):
        _row(board, _TOP + _PITCH * row, scale, name, plan)
    return board


def _row(board: Sketch, y: float, scale: float, name: str, plan: Any) -> None:
    board.text(24, y, name, bold=True, size=9.5)
    above, below = y + 14, y + 18 + _LANE
    board.text(24, above + _LANE / 2, "backward", size=9)
    board.text(24, below + _LANE / 2, "all-reduce", size=9)
    layers = len(plan.backward)
    works = [(start, end, str(layers - i)) for i, (start, end) in enumerate(plan.backward)]
    for series, top, bars in ((0, above, works), (2, below, _sent(plan, scale))):
        for start, end, word in bars:
            wide = (end - start) * scale
            board.box(
                _LEFT + start * scale, top, wide, _LANE, word if wide >= 18 else "",
                series=series, hatch=series > 0, size=8.5, corner=min(1.5, wide / 4),
            )  # fmt: skip
    done = _LEFT + plan.backward[-1][1] * scale
    # Not over the lower lane: it has words.
    board.line((done, above - 7), (done, below), above=True)
    board.line((done, below + _LANE), (done, below + _LANE + 7), above=True)
    end = _LEFT + plan.seconds * scale
    board.text(end + 10, below + _LANE / 2, seconds_text(plan.seconds), size=9.5, bold=True)
    if plan.exposed > 0:
        board.text(
            done + 10, above + _LANE / 2, f"{seconds_text(plan.exposed)} more", size=9,
            color=OKABE_ITO["vermillion"],
        )  # fmt: skip


def _sent(plan: Any, scale: float) -> list[tuple[float, float, str]]:
    """Each bucket with the numbers of its layers in the model, as long as all of them fit."""
    layers = len(plan.backward)
    ends = [(layers - one.first, layers - one.last) for one in plan.buckets]
    short = [str(high) if high == low else f"{high}–{low}" for high, low in ends]
    widths = [(one.end - one.start) * scale for one in plan.buckets]
    for words in ([f"layers {word}" for word in short], short, [""] * len(short)):
        if all(7.6 * len(word) + 8 <= wide for word, wide in zip(words, widths, strict=True)):
            break
    return [(one.start, one.end, word) for one, word in zip(plan.buckets, words, strict=True)]
