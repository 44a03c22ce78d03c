"""Costs of algorithms as lines, with a mark where the fastest changes."""

from __future__ import annotations

from typing import Any

from labkit.kinds import bytes_text, seconds_text
from labkit.views.figure import INK, Picture, figure, look, picture, style

__all__ = ["costs"]


def costs(shown: Any) -> Picture:
    """A line for each algorithm by message size or rank count; both axes grow by factors."""
    names = list(shown.seconds)
    with style():
        chart = figure(8, 4.6)
        by_size = shown.by == "bytes"
        axes = chart.add_subplot(
            xlabel="size of each rank's buffer" if by_size else "number of ranks, doubling",
            ylabel="time",
        )
        axes.set(xscale="log", yscale="log", title=shown.title)
        for number, name in enumerate(names):
            like = look(number)
            every = (4 * number % 7, 8) if by_size else None
            axes.plot(
                shown.along, shown.seconds[name], label=_said(name), markevery=every, **like.line
            )
        _mark(axes, shown)
        _label_axes(axes, shown, by_size)
        axes.legend(loc="upper left", fontsize=9)
        return picture(chart, _alt(shown), shown.kind)


def _mark(axes: Any, shown: Any) -> None:
    """A line down from each place where another becomes the fastest."""
    for mark in shown.crossovers:
        axes.axvline(mark.at, color="#5F6368", linewidth=1, linestyle=":", zorder=0, marker="")
        axes.plot(
            [mark.at], [mark.seconds], "o", color="white", markeredgecolor=INK, markersize=9,
            markeredgewidth=1.6, zorder=5,
        )  # fmt: skip
        axes.annotate(
            f"{_said(mark.faster)}\nfrom {shown.place(mark.at)} on", (mark.at, mark.seconds),
            xytext=(9, -12), textcoords="offset points", va="top", size=9, color=INK,
        )  # fmt: skip


def _label_axes(axes: Any, shown: Any, by_size: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axes.xaxis.set_major_locator(LogLocator(base=10 if by_size else 2, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: _round(bytes_text(value)) if by_size else f"{value:,.0f}")
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _round(seconds_text(value))))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(shown.along[0], shown.along[-1])
    # Below the lowest line is the place for the words at the marks.
    axes.set_ylim(bottom=axes.get_ylim()[0] / 3)


def _round(text: str) -> str:
    """Ticks are round numbers: "1.00 µs" is "1 µs"."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _said(name: str) -> str:
    return name.replace("_all_reduce", "").replace("_", " ")


def _alt(shown: Any) -> str:
    last = shown.along[-1]
    ends = ", ".join(
        f"{_said(name)} {seconds_text(times[0])} and {seconds_text(times[-1])}"
        for name, times in shown.seconds.items()
    )
    first = shown.place(shown.along[0])
    return f"{shown!r} At {first} and {shown.place(last)}: {ends}."
