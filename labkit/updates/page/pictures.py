"""Synchronous and asynchronous training as pictures: who does what when, staleness, losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from labkit.kinds import Kind, seconds_text
from labkit.views.figure import (
    FAINT,
    INK,
    Picture,
    figure,
    legend_below,
    look,
    mark_target,
    picture,
    style,
    time_axis,
)  # fmt: skip
from labkit.views.lanes import Bar, BarStyle, Lanes, unit_of, width_of

if TYPE_CHECKING:
    from labkit.updates.record import Updates
from labkit.views.sketch import WIDTH

LOOKS = 7  # workers that can be told apart
HUGE = 1e100  # a loss that no axis shows
STATES = {
    "computes": BarStyle("computes: version read → version made", 0),
    "late": BarStyle("computes, comes too late", 3),
    "waits": BarStyle("waits", None),
    "communicates": BarStyle("network and server", 5),
    "open": BarStyle("not finished", None, dashed=True),
}
SHOWN = 6  # gradients of each worker, on average, unless another end is given
LINES = 80  # versions with a line through all lanes


def timeline(run: Updates, until: float | None = None) -> Picture:
    """Returns a lane for each worker, and one for the weights with their versions."""
    end = _end(run) if until is None else min(until, run.seconds)
    bars = list(_bars(run, end))
    made = {g.written: g.applied for g in run.used if g.written and g.applied <= end}
    names = [f"worker {worker}" for worker in range(run.workers)]
    title = run.title.removesuffix(f", {run.problem}")
    lanes = Lanes(title, "", bars, STATES, names, run.kind, below=34)
    _draw_versions(lanes, made, run.workers)
    return lanes.board.picture(
        f"Timeline of {run.title}, in which {len(made)} versions of the weights are made, "
        f"{lanes.words()}"
    )


def _end(run: Updates) -> float:
    """Returns a time until which each worker has made some gradients, the slowest at least one."""
    applied = sorted(g.applied for g in run.gradients)
    first = {g.worker: g.applied for g in reversed(run.gradients)}
    return float(max(applied[: SHOWN * run.workers][-1], *first.values()))


def _bars(run: Updates, end: float) -> Iterator[Bar]:
    reached = dict.fromkeys(range(run.workers), 0.0)
    for one in run.gradients:
        reached[one.worker] = one.applied
        versions = f"{one.read}→{'late' if one.written is None else one.written}"
        for state, start, stop in (
            ("waits", one.requested, one.pulled),
            ("communicates", one.pulled, one.began),
            ("late" if one.written is None else "computes", one.began, one.ended),
            ("communicates", one.ended, one.arrived),
            ("waits", one.arrived, one.ready),
            ("communicates", one.ready, one.applied),
        ):
            if start < min(stop, end):
                words = (versions,) if state in ("late", "computes") else ()
                yield Bar(one.worker, state, start, min(stop, end), words)
    for worker, last in reached.items():
        if last < end:
            yield Bar(worker, "open", last, end)


def _draw_versions(lanes: Lanes, made: dict[int, float], workers: int) -> None:
    """Draw a mark for each version, with its number if there is room."""
    y, taken = lanes.y(workers) + 4, 0.0
    lanes.board.text(24, y + 16, "version", size=9.5)
    for version, at in sorted(made.items()):
        x, half = lanes.x(at), width_of(str(version), 8.5) / 2
        if len(made) <= LINES:
            lanes.board.line((x, lanes.y(0)), (x, y), dashed=True, color=FAINT)
        lanes.board.line((x, y), (x, y + 7))
        if x - half > taken + 3 and x + half < WIDTH - 16:
            taken = x + half
            lanes.board.text(x, y + 17, str(version), size=8.5, align="center")


def histogram(run: Updates) -> Picture:
    """Bars of gradients by their staleness, stacked by worker, and the mean as a line."""
    from matplotlib.ticker import MaxNLocator

    apart = 1 < run.workers <= LOOKS
    shown = range(run.workers) if apart else (None,)
    mean = run.mean_staleness
    with style():
        chart = figure(8, 3.6)
        axes = chart.add_subplot(
            title=f"Staleness: {run.name}, workers: {run.workers}",
            xlabel="staleness: updates between reading and writing", ylabel="gradients",
        )  # fmt: skip
        height: Counter[int] = Counter()
        for index, worker in enumerate(shown):
            counts = run.staleness_counts(worker)
            axes.bar(
                list(counts), list(counts.values()), width=0.8, linewidth=1,
                bottom=[height[stale] for stale in counts], label=f"worker {worker}",
                **look(index).bar,
            )  # fmt: skip
            height.update(counts)
        top = 1.18 * max(height.values())
        axes.axvline(mean, color=INK, linewidth=1.6, linestyle="--", marker="")
        right = mean > 0.6 * run.max_staleness > 0
        axes.annotate(
            f"mean {mean:.2f}", (mean, top), xytext=(-6 if right else 6, -4), va="top", size=9.5,
            textcoords="offset points", ha="right" if right else "left",
        )  # fmt: skip
        axes.set(xlim=(-0.7, max(3, run.max_staleness) + 0.7), ylim=(0, top))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        if apart:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
        words = ", ".join(f"{count} by {stale}" for stale, count in sorted(height.items())[:20])
        alt = (
            f"Staleness of {len(run.used)} gradients, {run.title}: {words}. "
            f"Mean {mean:.2f}, largest {run.max_staleness}."
        )
        return picture(chart, alt, run.kind)


def curves(runs: Sequence[Updates], names: Sequence[str], kind: Kind, target: float) -> Picture:
    """Returns the loss over updates, and the same loss over seconds, which are a factor apart."""
    with style():
        chart = figure(8, 4.1)
        by_update, by_second = chart.subplots(1, 2, sharey=True)
        scale, unit = unit_of(max(run.seconds for run in runs))
        by_update.set(title="By update", xlabel="updates of the weights", ylabel="loss")
        by_second.set(title="By time", xlabel=unit)
        for index, (name, run) in enumerate(zip(names, runs, strict=True)):
            losses = [one for one in run.losses if one.loss < HUGE]
            drawn = {**look(index).line, "markevery": (index / 40, 0.14), "label": name}
            by_update.plot([one.version for one in losses], [one.loss for one in losses], **drawn)
            later = [one for one in losses if one.seconds > 0]  # a logarithmic axis has no zero
            by_second.plot([one.seconds / scale for one in later], [one.loss for one in later],
                           **drawn)  # fmt: skip
        # A run that diverges leaves the picture at the top.
        every = [one.loss for run in runs for one in run.losses if one.loss < HUGE]
        top = min(max(every), 3 * max(run.losses[0].loss for run in runs))
        by_update.set(yscale="log", ylim=(max(min(every), 1e-12) / 1.5, top * 1.5))
        by_update.set_xlim(left=0)
        by_update.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        time_axis(by_second)
        for axes, words in ((by_update, ""), (by_second, f"target\n{target:.3g}")):
            mark_target(axes, target, words)
        legend_below(chart, by_update)
        said = "; ".join(_words(run, name, target) for name, run in zip(names, runs, strict=True))
        return picture(chart, f"Loss by update and by time. {said}.", kind)


def _words(run: Updates, name: str, target: float) -> str:
    seconds = run.time_to(target)
    reached = "never" if seconds is None else f"after {seconds_text(seconds)}"
    return (
        f"{name}: loss {run.losses[-1].loss:.3g} after {run.updates} updates "
        f"in {seconds_text(run.seconds)}, {reached} at {target:g}"
    )
