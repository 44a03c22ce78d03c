"""A timeline of workers: each computes, waits or communicates, and the weights get versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from labkit.kinds import percent_text, seconds_text
from labkit.views.figure import FAINT, INK, Picture, figure, look, picture, style, tint

__all__ = ["timeline"]

# Each state of a worker: its words in the key, and how it is drawn.
STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "computes": ("computes: version read → version made", look(0).bar),
    "late": ("computes, comes too late", look(3).bar),
    "waits": ("waits", {"facecolor": "#ECEEF0", "edgecolor": FAINT}),
    "communicates": ("network and server", look(5).bar),
    "open": ("not finished", {"facecolor": "white", "edgecolor": FAINT, "linestyle": "--"}),
}
SHOWN = 6  # gradients of each worker, on average, unless another end is given
DESCRIBED = 8  # workers in the alt text
TOP, HIGH = 0.1, 0.7  # of a bar in its lane
NARROW = 1e-3  # of the picture: a bar that is not seen needs no key
LINES = 80  # versions with a line through all lanes


class Bar(NamedTuple):
    """A worker in one state, and the versions that it reads and makes."""

    worker: int
    state: str
    start: float
    end: float
    versions: tuple[int | str, ...] = ()


def timeline(run: Any, until: float | None = None) -> Picture:
    """A lane for each worker, and one for the weights with the versions as they are made."""
    end = _end(run) if until is None else min(until, run.seconds)
    bars = list(_bars(run, end))
    made = {g.written: g.applied for g in run.used if g.applied <= end}
    scale, unit = (1.0, "seconds") if end >= 1 else (1e-3, "milliseconds")
    high = min(0.5, 6 / run.workers)
    inches = 6.6 / end * scale  # of a unit of the axis; roughly, for the layout comes later
    with style():
        chart = figure(8, 1.75 + high * (run.workers + 1))
        axes = chart.add_subplot(xlabel=unit)
        axes.set_title(run.title.removesuffix(f", {run.problem}"), pad=30)
        _draw(axes, bars, scale, inches if high > 0.4 else 0)
        _draw_versions(axes, {v: at / scale for v, at in made.items()}, run.workers, inches)
        lanes = [*range(0, run.workers, 1 if run.workers <= 20 else 4), run.workers]
        axes.set_yticks(
            [lane + TOP + HIGH / 2 for lane in lanes],
            [*(f"worker {worker}" for worker in lanes[:-1]), "version"],
        )
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(run.workers + TOP + 0.42 / high, -0.05)
        axes.set_xlim(0, 1.012 * end / scale)
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
        seen = {bar.state for bar in bars if bar.end - bar.start > NARROW * end}
        _draw_key(axes, [STATES[state] for state in STATES if state in seen])
        return picture(chart, _alt(run, bars, made, end), run.kind)


def _end(run: Any) -> float:
    """Some gradients of each worker: of the slowest at least one."""
    applied = sorted(g.applied for g in run.gradients)
    first = {g.worker: g.applied for g in reversed(run.gradients)}
    return float(max(applied[: SHOWN * run.workers][-1], *first.values()))


def _bars(run: Any, end: float) -> Iterator[Bar]:
    reached = dict.fromkeys(range(run.workers), 0.0)
    for one in run.gradients:
        reached[one.worker] = one.applied
        versions = (one.read, "late" if one.written is None else one.written)
        for state, start, stop in (
            ("waits", one.requested, one.pulled),
            ("communicates", one.pulled, one.began),
            ("late" if one.written is None else "computes", one.began, one.ended),
            ("communicates", one.ended, one.arrived),
            ("waits", one.arrived, one.ready),
            ("communicates", one.ready, one.applied),
        ):
            if start < min(stop, end):
                words = versions if state in ("late", "computes") else ()
                yield Bar(one.worker, state, start, min(stop, end), words)
    for worker, last in reached.items():
        if last < end:
            yield Bar(worker, "open", last, end)


def _draw(axes: Any, bars: Sequence[Bar], scale: float, inches: float) -> None:
    """All bars, and the versions on those that are wide enough."""
    for state, (_, drawn) in STATES.items():
        for worker in {bar.worker for bar in bars if bar.state == state}:
            mine = [b for b in bars if (b.worker, b.state) == (worker, state)]
            spans = [(bar.start / scale, (bar.end - bar.start) / scale) for bar in mine]
            axes.broken_barh(spans, (worker + TOP, HIGH), linewidth=0.8, zorder=2, **drawn)
    for bar in bars:
        text = "→".join(map(str, bar.versions))
        if text and 0.075 * (len(text) + 1) < (bar.end - bar.start) / scale * inches:
            color = tint(look(3 if bar.state == "late" else 0).color)
            axes.text(
                (bar.start + bar.end) / 2 / scale, bar.worker + TOP + HIGH / 2, text, size=8,
                ha="center", va="center_baseline", color=INK, zorder=6,
                bbox={"facecolor": color, "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip


def _draw_versions(axes: Any, made: dict[int, float], lane: int, inches: float) -> None:
    """A mark for each version, and its number where there is room for it."""
    top, taken = lane + TOP, -1.0
    if len(made) <= LINES:
        axes.vlines(list(made.values()), 0, top, color=FAINT, linewidth=0.6, linestyle=":",
                    zorder=0.5)  # fmt: skip
    axes.vlines(list(made.values()), top, top + 0.2, color=INK, linewidth=1.2)
    for version, at in sorted(made.items()):
        half = 0.045 * (len(str(version)) + 1)  # of its width, in inches
        if at * inches - half > taken:
            taken = at * inches + half
            axes.annotate(
                str(version), (at, top + 0.2), xytext=(0, -2), textcoords="offset points",
                size=8, ha="center", va="top", color=INK,
            )  # fmt: skip


def _draw_key(axes: Any, states: Sequence[tuple[str, dict[str, Any]]]) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(label=words, linewidth=0.8, **drawn) for words, drawn in states],
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(states), fontsize=8.5,
        borderaxespad=0.2, handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip


def _alt(run: Any, bars: Sequence[Bar], made: dict[int, float], end: float) -> str:
    parts = []
    for worker in range(min(run.workers, DESCRIBED)):
        mine = [bar for bar in bars if bar.worker == worker and bar.versions]
        share = sum(bar.end - bar.start for bar in mine) / end
        stale = [g.staleness or 0 for g in run.of(worker) if g.written and g.applied <= end]
        words = f"worker {worker} begins {len(mine)} gradients, computes {percent_text(share)}"
        parts.append(words + (f", staleness up to {max(stale)}" if stale else ""))
    more = f"; and {run.workers - DESCRIBED} more workers" if run.workers > DESCRIBED else ""
    return (
        f"Timeline of {run.title}, the first {seconds_text(end)}, in which {len(made)} versions "
        f"of the weights are made: {'; '.join(parts)}{more}."
    )
