"""Staleness, stability and losses of asynchronous training as pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from labkit.kinds import seconds_text
from labkit.views.figure import FAINT, INK, Picture, figure, look, picture, style

__all__ = ["curves", "histogram", "limits"]

LOOKS = 7  # workers that can be told apart
HUGE = 1e100  # a loss that no axis shows


def histogram(run: Any) -> Picture:
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


def limits(found: Any) -> Picture:
    """The largest stable step over the delay: a line by the formula, marks by bisection."""
    from matplotlib.ticker import MaxNLocator

    with style():
        chart = figure(8, 3.8)
        axes = chart.add_subplot(
            title="The largest stable step shrinks with the delay",
            xlabel="delay: by how many updates a gradient is late",
            ylabel="learning rate × curvature",
        )
        axes.plot(found.delays, found.formula, color=look(0).color, linestyle="-", marker="",
                  label="limit by the formula")  # fmt: skip
        axes.plot(found.delays, found.bisection, linestyle="", marker="o", markersize=8,
                  markerfacecolor="white", markeredgecolor=INK, markeredgewidth=1.6,
                  label="limit by bisection")  # fmt: skip
        axes.plot(found.delays, found.fastest, label="largest step without oscillation",
                  **look(2).line)  # fmt: skip
        axes.set(ylim=(0, max(found.formula) * 1.08),
                 xlim=(min(found.delays) - 0.3, max(found.delays) + 0.3))  # fmt: skip
        axes.text(0.97, 0.6, "diverges", transform=axes.transAxes, ha="right", size=11,
                  color=look(3).color, fontweight="bold")  # fmt: skip
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper right", fontsize=9)
        columns = zip(found.delays, found.formula, found.bisection, strict=True)
        words = "; ".join(f"delay {d}: {f:.4f} and {b:.4f}" for d, f, b in columns)
        alt = f"Largest stable step by the formula and by bisection. {words}."
        return picture(chart, alt, found.kind)


def curves(runs: Sequence[Any], names: Sequence[str], kind: Any, target: float) -> Picture:
    """The loss over updates, and the same loss over seconds."""
    from matplotlib.ticker import FuncFormatter

    with style():
        chart = figure(8, 3.9)
        by_update, by_second = chart.subplots(1, 2, sharey=True)
        scale, unit = (
            (1, "seconds") if max(r.seconds for r in runs) >= 1 else (1e-3, "milliseconds")
        )
        by_update.set(title="By update", xlabel="updates of the weights", ylabel="loss")
        by_second.set(title="By time", xlabel=unit)
        lines = []
        for index, (name, run) in enumerate(zip(names, runs, strict=True)):
            losses = [one for one in run.losses if one.loss < HUGE]
            height = [one.loss for one in losses]
            drawn = {**look(index).line, "markevery": (index / 40, 0.14), "label": name}
            lines += by_update.plot([one.version for one in losses], height, **drawn)
            by_second.plot([one.seconds / scale for one in losses], height, **drawn)
        # A run that diverges leaves the picture at the top.
        every = [one.loss for run in runs for one in run.losses if one.loss < HUGE]
        top = min(max(every), 3 * max(run.losses[0].loss for run in runs))
        by_update.set(yscale="log", ylim=(max(min(every), 1e-12) / 1.5, top * 1.5))
        by_update.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for axes in (by_update, by_second):
            axes.set_xlim(left=0)
            axes.axhline(target, color=FAINT, linewidth=1, linestyle=":", marker="")
        # One legend below for both: lines that cross leave no corner free for certain.
        inches = 0.075 * max(len(name) for name in names) + 0.6
        columns = max(1, min(len(names), int(7.4 / inches)))
        chart.legend(handles=lines, loc="outside lower center", ncols=columns, fontsize=9)
        words = "; ".join(_words(run, name, target) for name, run in zip(names, runs, strict=True))
        return picture(chart, f"Loss by update and by time. {words}.", kind)


def _words(run: Any, name: str, target: float) -> str:
    seconds = run.time_to(target)
    reached = "never" if seconds is None else f"after {seconds_text(seconds)}"
    return (
        f"{name}: loss {run.losses[-1].loss:.3g} after {run.updates} updates "
        f"in {seconds_text(run.seconds)}, {reached} at {target:g}"
    )
