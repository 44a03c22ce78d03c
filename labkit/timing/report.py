"""How timings are shown: as text, as an HTML table, as a picture. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labkit.kinds import seconds_text
from labkit.timing.estimate import Estimate, quantity_text, span_text
from labkit.timing.judge import Verdict
from labkit.timing.results import Comparison, Run

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = [
    "comparison_html",
    "comparison_picture",
    "comparison_text",
    "run_html",
    "run_picture",
    "run_text",
]


def run_text(run: Run) -> str:
    """One line of numbers, what to know about them, their kind."""
    head, row = _run_cells(run)
    return _text(_run_caption(run), head, [row], (*run.log.notes(), _kind(run)))


def run_html(run: Run) -> str:
    """The same as a table for notebooks."""
    from labkit.views.table import table

    head, row = _run_cells(run)
    return table(head, [row], _run_caption(run), " ".join((*run.log.notes(), _kind(run))))


def run_picture(run: Run) -> Picture:
    """Every call as a dot."""
    from labkit.views import timing_figure

    strip = timing_figure.Strip(run.name, run.samples, run.seconds(), str(run.seconds()))
    return timing_figure.samples([strip], _run_caption(run), run.log.notes(), run.kind)


def comparison_text(comparison: Comparison) -> str:
    """A line for each candidate, the verdicts in words, what to know about them, their kind."""
    head, rows = _comparison_cells(comparison)
    said = [f"{verdict}." for verdict in _verdicts(comparison)]
    under = (*said, *comparison.log.notes(), _kind(comparison))
    return _text(_comparison_caption(comparison), head, rows, under)


def comparison_html(comparison: Comparison) -> str:
    """The same as a table for notebooks."""
    from labkit.views.table import table

    head, rows = _comparison_cells(comparison)
    for row in rows:
        name = row[0]
        row.append("baseline" if name == comparison.baseline else _word(comparison.verdict(name)))
    said = [f"{verdict}." for verdict in _verdicts(comparison)]
    footer = " ".join((*said, *comparison.log.notes(), _kind(comparison)))
    return table([*head, "verdict"], rows, _comparison_caption(comparison), footer)


def comparison_picture(comparison: Comparison) -> Picture:
    """A strip of dots for each candidate."""
    from labkit.views import timing_figure

    strips = []
    for name in comparison.names:
        seconds = comparison.seconds(name)
        words = str(seconds)
        if name != comparison.baseline:
            verdict = comparison.verdict(name)
            words += f"\n{_word(verdict)}, {verdict.estimate}"
        strips.append(timing_figure.Strip(name, comparison.log.samples(name), seconds, words))
    notes = (*(f"{verdict}." for verdict in _verdicts(comparison)), *comparison.log.notes())
    return timing_figure.samples(strips, _comparison_caption(comparison), notes, comparison.kind)


def _verdicts(comparison: Comparison) -> list[Verdict]:
    return [comparison.verdict(name) for name in comparison.names if name != comparison.baseline]


def _word(verdict: Verdict) -> str:
    if verdict.word == "same":
        return f"same within {100 * verdict.same_within:g} %"
    return verdict.word


def _run_caption(run: Run) -> str:
    return _titled(f"{run.name}: {_counted(len(run.samples), 'call')}", run.label)


def _comparison_caption(comparison: Comparison) -> str:
    text = f"{_counted(comparison.rounds, 'round')}, each in random order"
    return _titled(text, comparison.label)


def _titled(text: str, label: str) -> str:
    return f"{text}; {label}" if label else text


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _kind(shown: Run | Comparison) -> str:
    kind = str(shown.kind)
    return f"{kind[:1].upper()}{kind[1:]}."


def _interval_head(estimate: Estimate) -> str:
    sure = 100 * estimate.confidence
    return f"interval ({sure:.0f} %)" if estimate.confidence > 0 else "interval"


def _run_cells(run: Run) -> tuple[list[str], list[str]]:
    seconds = run.seconds()
    head = ["", "median", _interval_head(seconds)]
    row = [run.name, *_seconds_cells(seconds)]
    if run.items is not None:
        head.append(f"{run.unit}/s")
        row.append(_rate_cell(run.throughput()))
    return [*head, "first call"], [*row, seconds_text(run.first)]


def _comparison_cells(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    head = ["", "median", _interval_head(comparison.seconds(comparison.baseline))]
    if comparison.items is not None:
        head.append(f"{comparison.unit}/s")
    head.append(f"speed-up over {comparison.baseline}")
    if comparison.scaling is not None:
        head += ["devices", f"efficiency ({comparison.scaling} scaling)"]
    head.append("first call")
    return head, [_row(comparison, name) for name in comparison.names]


def _row(comparison: Comparison, name: str) -> list[str]:
    row = [name, *_seconds_cells(comparison.seconds(name))]
    if comparison.items is not None:
        row.append(_rate_cell(comparison.throughput(name)))
    is_baseline = name == comparison.baseline
    row.append("1" if is_baseline else _without_confidence(comparison.speedup(name)))
    if comparison.scaling is not None and comparison.devices is not None:
        efficiency = comparison.efficiency(name)
        row.append(str(comparison.devices[name]))
        row.append("100 %" if is_baseline else _without_confidence(efficiency))
    return [*row, seconds_text(comparison.first(name))]


def _seconds_cells(seconds: Estimate) -> tuple[str, str]:
    known = seconds.confidence > 0
    return seconds_text(seconds.value), span_text(seconds.low, seconds.high, "s") if known else "–"


def _rate_cell(rate: Estimate) -> str:
    # The unit stands in the column's head.
    return quantity_text(rate.value, rate.unit).split(" ")[0]


def _without_confidence(estimate: Estimate) -> str:
    value = quantity_text(estimate.value, estimate.unit, estimate.high - estimate.low)
    if estimate.confidence <= 0:
        return value
    return f"{value} ({span_text(estimate.low, estimate.high, estimate.unit)})"


def _text(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], under: Sequence[str]
) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([caption, *shown, *under])
