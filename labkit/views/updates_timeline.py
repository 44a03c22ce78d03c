"""When each worker computes, waits and talks to the server; which versions it reads and makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from labkit.kinds import percent_text, seconds_text
from labkit.views.figure import FAINT, INK, Picture, figure, look, picture, style, tint

__all__ = ["timeline"]

# Each state of a worker: its words in the key, and how it is drawn.
_STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "computes": ("computes: version read → version made", look(0).bar),
    "late": ("computes, comes too late", look(3).bar),
    "waits": ("waits", {"facecolor": "#ECEEF0", "edgecolor": FAINT}),
    "moves": ("network and server", look(5).bar),
    "open": ("not finished", {"facecolor": "white", "edgecolor": FAINT, "linestyle": "--"}),
}
_SHOWN = 6  # gradients of each worker, on average, unless another end is asked for
_SAID = 8  # workers of whom the alt text tells
_TOP, _TALL = 0.1, 0.7
_NARROW = 1e-3  # of the picture: a bar that is not seen needs no key
_LINES = 80  # versions; more lines through all lanes would be a curtain


class Bar(NamedTuple):
    """A worker in one state, and what is written on it."""

    worker: int
    state: str
    start: float
    end: float
    words: tuple[str, ...] = ()


def timeline(run: Any, until: float | None = None) -> Picture:
    """A lane for each worker, and one for the weights with the versions as they are made."""
    end = _end(run) if until is None else min(until, run.seconds)
    bars = list(_bars(run, end))
    made = {g.written: g.applied for g in run.used if g.applied <= end}
    scale, unit = (1.0, "seconds") if end >= 1 else (1e-3, "milliseconds")
    high = 0.5 if run.workers <= 8 else 0.3 if run.workers <= 20 else 0.15
    inches = 6.6 / end  # of a second; roughly, for the layout comes later
    with style():
        chart = figure(8, 1.45 + 0.3 + high * (run.workers + 1))
        axes = chart.add_subplot(xlabel=unit)
        _draw(axes, bars, scale)
        if high > 0.4:
            _write(axes, bars, scale, inches)
        _weights(axes, made, run.workers, scale, inches)
        _lanes(axes, run.workers)
        axes.set_xlim(0, 1.012 * end / scale)
        many = "1 worker" if run.workers == 1 else f"{run.workers} workers"
        axes.set_title(f"{run.name[0].upper()}{run.name[1:]}, {many}", pad=30)
        _key(axes, {bar.state for bar in bars if bar.end - bar.start > _NARROW * end})
        return picture(chart, _alt(run, bars, made, end), run.kind)


def _end(run: Any) -> float:
    """Some gradients of everybody: of the slowest one at least one."""
    applied = sorted(g.applied for g in run.gradients)
    usual = applied[min(len(applied), _SHOWN * run.workers) - 1] if applied else 1.0
    first: dict[int, float] = {}
    for one in run.gradients:
        first.setdefault(one.worker, one.applied)
    return float(max([usual, *first.values()]))


def _bars(run: Any, end: float) -> Iterator[Bar]:
    reached = dict.fromkeys(range(run.workers), 0.0)
    for one in run.gradients:
        reached[one.worker] = one.applied
        late = one.written is None
        made = "late" if late else one.written
        words = (f"{one.read} → {made}", f"{one.read}→{made}")
        for state, start, stop, said in (
            ("waits", one.asked, one.allowed, ()),
            ("moves", one.allowed, one.began, ()),
            ("late" if late else "computes", one.began, one.ended, words),
            ("moves", one.ended, one.arrived, ()),
            ("waits", one.arrived, one.ready, ()),
            ("moves", one.ready, one.applied, ()),
        ):
            if start < min(stop, end):
                yield Bar(one.worker, state, start, min(stop, end), said)
    for worker, last in reached.items():
        if last < end:
            yield Bar(worker, "open", last, end)


def _draw(axes: Any, bars: Sequence[Bar], scale: float) -> None:
    from matplotlib.collections import PolyCollection

    for state, (_, how) in _STATES.items():
        corners = [
            [
                (x / scale, bar.worker + y)
                for x, y in (
                    (bar.start, _TOP),
                    (bar.end, _TOP),
                    (bar.end, _TOP + _TALL),
                    (bar.start, _TOP + _TALL),
                )
            ]
            for bar in bars
            if bar.state == state
        ]
        axes.add_collection(PolyCollection(corners, linewidth=0.8, zorder=2, **how))


def _write(axes: Any, bars: Sequence[Bar], scale: float, inches: float) -> None:
    for bar in bars:
        room = (bar.end - bar.start) * inches
        said = next((word for word in bar.words if 0.075 * (len(word) + 1) < room), "")
        if said:
            ground = tint(look(3 if bar.state == "late" else 0).color)
            axes.text(
                (bar.start + bar.end) / 2 / scale, bar.worker + _TOP + _TALL / 2, said, size=8,
                ha="center", va="center_baseline", color=INK, zorder=6,
                bbox={"facecolor": ground, "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip


def _weights(axes: Any, made: dict[int, float], lane: int, scale: float, inches: float) -> None:
    """A mark for each version, through all lanes, and its number where there is room for it."""
    top, taken = lane + _TOP, -1.0
    places = [at / scale for at in made.values()]
    if len(places) <= _LINES:
        axes.vlines(places, 0, top, color=FAINT, linewidth=0.6, linestyle=":", zorder=0.5)
    axes.vlines(places, top, top + 0.2, color=INK, linewidth=1.2)
    for version, at in sorted(made.items()):
        wide = 0.045 * (len(str(version)) + 1)  # half of it, in inches
        if at * inches - wide > taken:
            axes.annotate(
                str(version), (at / scale, top + 0.2), xytext=(0, -2), textcoords="offset points",
                size=8, ha="center", va="top", color=INK,
            )  # fmt: skip
            taken = at * inches + wide


def _lanes(axes: Any, workers: int) -> None:
    every = 1 if workers <= 20 else 4
    named = list(range(0, workers, every))
    places = [worker + _TOP + _TALL / 2 for worker in [*named, workers]]
    axes.set_yticks(places, [*(f"worker {worker}" for worker in named), "version"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(workers + 0.95 + 0.3 * (workers > 8) + 1.5 * (workers > 20), -0.05)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def _key(axes: Any, there: set[str]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(label=words, linewidth=0.8, **how)
        for state, (words, how) in _STATES.items()
        if state in there
    ]
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(handles),
        fontsize=8.5, borderaxespad=0.2, handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip


def _alt(run: Any, bars: Sequence[Bar], made: dict[int, float], end: float) -> str:
    parts = []
    for worker in range(min(run.workers, _SAID)):
        mine = [bar for bar in bars if bar.worker == worker and bar.words]
        spent = sum(bar.end - bar.start for bar in mine) / end
        stale = [g.staleness or 0 for g in run.of(worker) if g.written and g.applied <= end]
        words = f"worker {worker} begins {len(mine)} gradients, computes {percent_text(spent)}"
        parts.append(words + (f", staleness up to {max(stale)}" if stale else ""))
    more = f"; and {run.workers - _SAID} more workers" if run.workers > _SAID else ""
    return (
        f"Timeline of {run.title()}, the first {seconds_text(end)}, in which {len(made)} versions "
        f"of the weights are made: {'; '.join(parts)}{more}."
    )
