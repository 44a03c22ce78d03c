"""Late gradients as pictures: how late they are, how large a step they bear, what they bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from labkit.kinds import seconds_text
from labkit.views.figure import FAINT, INK, Picture, figure, look, picture, style

__all__ = ["curves", "histogram", "limits"]

_APART = 7  # workers that have a look of their own


def histogram(run: Any) -> Picture:
    """Bars of gradients by their staleness, stacked by worker, and the mean as a line."""
    from matplotlib.ticker import MaxNLocator

    apart = run.workers <= _APART
    stacks = [(f"worker {w}", run.staleness_counts(w)) for w in range(run.workers)] if apart else []
    stacks = stacks or [("all workers", run.staleness_counts())]
    with style():
        chart = figure(8, 3.6)
        axes = chart.add_subplot(
            xlabel="staleness: updates between reading and writing", ylabel="gradients"
        )
        many = "1 worker" if run.workers == 1 else f"{run.workers} workers"
        axes.set_title(f"How late gradients come: {run.name}, {many}")
        height: dict[int, int] = {}
        for number, (name, counts) in enumerate(stacks):
            axes.bar(
                list(counts), list(counts.values()), width=0.8, linewidth=1,
                bottom=[height.get(stale, 0) for stale in counts], label=name, **look(number).bar,
            )  # fmt: skip
            for stale, count in counts.items():
                height[stale] = height.get(stale, 0) + count
        mean = run.mean_staleness
        axes.axvline(mean, color=INK, linewidth=1.6, linestyle="--", marker="")
        axes.set_xlim(-0.7, max(3, run.max_staleness) + 0.7)
        top = 1.18 * max(height.values(), default=1)
        axes.set_ylim(0, top)
        left = mean < 0.6 * run.max_staleness or not run.max_staleness
        axes.annotate(
            f"mean {mean:.2f}", (mean, top), xytext=(6 if left else -6, -4),
            textcoords="offset points", ha="left" if left else "right", va="top", size=9.5,
        )  # fmt: skip
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        if apart and run.workers > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
        said = ", ".join(f"{count} by {stale}" for stale, count in sorted(height.items())[:20])
        alt = (
            f"Staleness of {len(run.used)} gradients, {run.title()}: {said}. "
            f"Mean {mean:.2f}, largest {run.max_staleness}."
        )
        return picture(chart, alt, run.kind)


def limits(found: Any) -> Picture:
    """The largest stable step over the delay: the formula's line, marks where it was tried."""
    from matplotlib.ticker import MaxNLocator

    with style():
        chart = figure(8, 3.8)
        axes = chart.add_subplot(
            xlabel="delay: by how many updates a gradient is late",
            ylabel="learning rate × curvature",
        )
        axes.set_title("The later a gradient, the smaller the step that it bears")
        axes.plot(found.delays, found.formula, color=look(0).color, linestyle="-", marker="",
                  label="limit by the formula")  # fmt: skip
        axes.plot(
            found.delays, found.tried, linestyle="", marker="o", markersize=8,
            markerfacecolor="white", markeredgecolor=INK, markeredgewidth=1.6,
            label="limit by trying",
        )  # fmt: skip
        axes.plot(found.delays, found.fastest, label="largest step without swinging",
                  color=look(2).color, linestyle=look(2).dash, marker=look(2).marker)  # fmt: skip
        axes.set_ylim(0, max(found.formula) * 1.08)
        axes.set_xlim(min(found.delays) - 0.3, max(found.delays) + 0.3)
        axes.text(
            0.97, 0.6, "flies apart", transform=axes.transAxes, ha="right", color=look(3).color,
            size=11, fontweight="bold",
        )  # fmt: skip
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper right", fontsize=9)
        columns = zip(found.delays, found.formula, found.tried, strict=True)
        said = "; ".join(f"delay {d}: {f:.4f} and {t:.4f}" for d, f, t in columns)
        alt = f"Largest stable step by the formula and by trying. {said}."
        return picture(chart, alt, found.kind)


def curves(runs: Sequence[Any], names: Sequence[str], kind: Any, target: float | None) -> Picture:
    """The loss over updates, and the same loss over seconds: two different winners."""
    with style():
        chart = figure(8, 3.9)
        by_update, by_second = chart.subplots(1, 2, sharey=True)
        by_update.set(title="By update", xlabel="updates of the weights", ylabel="loss")
        end = max((run.seconds for run in runs), default=1.0)
        scale, unit = (1.0, "seconds") if end >= 1 else (1e-3, "milliseconds")
        by_second.set(title="By time", xlabel=unit)
        drawn = []
        for number, (name, run) in enumerate(zip(names, runs, strict=True)):
            losses = [one for one in run.losses if math.isfinite(one.loss)]
            height = [one.loss for one in losses]
            how = {**look(number).line, "markevery": (number / 40, 0.14), "label": name}
            drawn += by_update.plot([one.version for one in losses], height, **how)
            by_second.plot([one.seconds / scale for one in losses], height, **how)
        _heights(by_update, runs)
        for axes in (by_update, by_second):
            axes.set_xlim(left=0)
            if target is not None:
                axes.axhline(target, color=FAINT, linewidth=1, linestyle=":", marker="")
        # One legend below for both: lines that cross leave no corner free for certain.
        wide = 0.075 * max(len(name) for name in names) + 0.6  # inches of an entry
        columns = max(1, min(len(names), int(7.4 / wide)))
        chart.legend(handles=drawn, loc="outside lower center", ncols=columns, fontsize=9)
        return picture(chart, _alt(runs, names, target), kind)


def _heights(axes: Any, runs: Sequence[Any]) -> None:
    """Logarithmic where the loss falls far; what flies apart leaves the picture at the top."""
    from matplotlib.ticker import FuncFormatter

    every = [one.loss for run in runs for one in run.losses if math.isfinite(one.loss)]
    first = max(run.losses[0].loss for run in runs)
    least = max(min(every), 1e-12)
    top = min(max(every), 3 * first)
    if least < first / 20:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(least / 1.5, top * 1.5)
    else:
        axes.set_ylim(0, top * 1.06)


def _alt(runs: Sequence[Any], names: Sequence[str], target: float | None) -> str:
    said = []
    for name, run in zip(names, runs, strict=True):
        words = (
            f"{name}: loss {run.losses[-1].loss:.3g} after {run.updates} updates "
            f"in {seconds_text(run.seconds)}"
        )
        if target is not None:
            passed = run.time_to(target)
            words += (
                f", {'never' if passed is None else 'after ' + seconds_text(passed)} at {target:g}"
            )
        said.append(words)
    return f"Loss by update and by time. {'; '.join(said)}."
