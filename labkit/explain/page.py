"""An explanation as a page that needs nothing else, and two of them side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from labkit.explain.causes import PARTS
from labkit.kinds import percent_text, seconds_text
from labkit.views.bars import stacked
from labkit.views.embed import document
from labkit.views.figure import SHEET
from labkit.views.lanes import HATCHED, Bar, BarStyle, Lanes
from labkit.views.sketch import WIDTH, Sketch
from labkit.views.table import Table

if TYPE_CHECKING:
    from labkit.explain.explanation import Expected, Explanation, RankParts
    from labkit.views.figure import Picture

RANKS, STEPS, NAMED = 8, (12, 6, 3, 1), 6  # that are drawn: ranks, steps, parts beside the rest
PIXELS = 700  # of a lane
TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)
LEFT, TOP, PITCH = 24.0, 104.0, 46.0  # of the gains


def page(explanation: Explanation) -> str:
    """Returns the page as HTML that needs nothing else."""
    title = "Where the training time goes"
    return document(f"<h1>{title}</h1>{fragment(explanation)}", title)


def fragment(explanation: Explanation) -> str:
    """Returns the same as a piece of HTML, for the output of a cell."""
    one = explanation
    text = f"<style>{SHEET.read_text(encoding='utf-8')}</style>"
    text += f"<p><strong>{escape(_sentence(one.verdict))}</strong></p>"
    command = " ".join(one.command)
    text += f"<p><code>{escape(command)}</code> took {seconds_text(one.seconds)}"
    text += f", exit code {one.exit_code}; {escape(str(one.kind))}.</p>"
    if one.step:
        step = f"A step takes {seconds_text(one.step)}, the mean of {one.steps}. {one.limit}"
        text += f"<p>{escape(step)}</p>"
    text += _findings(one)
    drawn = gains(one), timeline(one), parts_of_a_step(one)
    text += "".join(f"<p>{picture.html}</p>" for picture in drawn if picture)
    for table in (one.other() if one.looked_for else None, one.predicted()):
        text += str(table._repr_mimebundle_()["text/html"]) if table else ""
    notes = [*one.notes, f"watching cost {percent_text(one.overhead)} of a step"]
    if one.not_seen:
        notes.append(f"looked for and not seen: {', '.join(one.not_seen)}")
    if one.measured_for:
        notes.append(f"the runs with something left out took {seconds_text(one.measured_for)}")
    return text + "".join(f"<p>{escape(_sentence(note))}</p>" for note in notes)


def _findings(explanation: Explanation) -> str:
    items = ""
    for one in explanation.findings:
        rows = {"Gain": f"{one.gain} ({one.kind})" if one.gain else "", "Seen": one.evidence,
                "Line": one.line, "Change": one.change, "Lecture": one.lecture}  # fmt: skip
        more = "".join(f"<br>{k}: {escape(v)}" for k, v in rows.items() if v)
        items += f"<li><strong>{escape(_sentence(one.cause))}</strong>{more}</li>"
    return f"<ol>{items}</ol>" if items else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def gains(explanation: Explanation) -> Picture | None:
    """Draws the interval of each gain: findings in colour, what else was measured in grey."""
    rows: list[tuple[str, Expected, str]] = []  # with the kind of a finding
    for number, found in enumerate(explanation.findings, 1):
        if found.gain:
            rows.append((f"{number}. {found.cause}", found.gain, found.kind))
    rows += [(one.cause, one.gain, "") for one in explanation.looked_for if one.gain]
    if not rows:
        return None
    low = min(1.0, *(gain.low for _, gain, _ in rows)) / 1.02
    high = max(1.5, *(gain.high for _, gain, _ in rows)) * 1.02
    scale = (WIDTH - LEFT - 130) / math.log(high / low)
    bottom = TOP + PITCH * len(rows)
    subtitle = "How many times as fast. Blue: a finding; dashed: attributed, not measured."
    board = Sketch("What each change would bring", bottom + 34, subtitle, kind=explanation.kind)

    def x(times: float) -> float:
        return LEFT + scale * math.log(min(max(times, low), high) / low)

    for tick in (one for one in TICKS if low <= one <= high):
        ends = (x(tick), TOP - 20), (x(tick), bottom - 8)
        board.line(*ends, dashed=tick != 1, color="#222222" if tick == 1 else "#D5D8DC")
        board.text(x(tick), bottom + 8, f"{tick:g}×", size=9, align="center")
    for number, (cause, gain, kind) in enumerate(rows):
        y = TOP + PITCH * number
        words = cause if len(cause) < 100 else f"{cause[:98]}…"
        board.text(LEFT, y, words, size=9.5, bold=bool(kind), backed="white")
        wide = max(3.0, x(gain.high) - x(gain.low))
        board.box(x(gain.low), y + 13, wide, 12, series=0 if kind else None, corner=1.5,
                  dashed="not measured" in kind)  # fmt: skip
        board.line((x(gain.value), y + 11), (x(gain.value), y + 27), heavy=True, above=True)
        board.text(x(gain.high) + 10, y + 19, f"{gain.low:.2f} to {gain.high:.2f}×", size=9)
    said = "; ".join(f"{cause}: {gain}" for cause, gain, _ in rows)
    return board.picture(f"What each change would bring, with intervals. {said}.")


def timeline(explanation: Explanation) -> Picture | None:
    """Draws some steps, a lane for each rank."""
    ranks = [one for one in explanation.ranks[:RANKS] if len(one.marks) > 1]
    if not ranks:
        return None
    parts = _named(ranks)
    start = min(one.marks[0] for one in ranks)
    for steps in STEPS:
        end = min(one.marks[: steps + 1][-1] for one in ranks)
        bars = [
            Bar(lane, part, a - start, b - start)
            for lane, one in enumerate(ranks)
            for part, a, b in innermost(one.spans, parts, max(start, one.marks[0]), end)
        ]
        if len(bars) < HATCHED:
            break
    states = {part: BarStyle(PARTS[part], at) for at, part in enumerate([*parts, "rest"])}
    names = [f"rank {number}" for number in range(len(ranks))]
    subtitle = "A vertical line ends a step."
    lanes = Lanes("Some steps, by rank", subtitle, bars, states, names, explanation.kind, high=52)
    for lane, one in enumerate(ranks):
        for x in (lanes.x(mark - start) for mark in one.marks if start < mark <= end):
            lanes.board.line((x, lanes.y(lane)), (x, lanes.y(lane + 0.88)), above=True)
    return lanes.board.picture(f"Some steps, by rank, {lanes.words()}")


def _named(ranks: Sequence[RankParts]) -> list[str]:
    """The parts that are drawn by name, in their order; the others count as the rest."""
    most = {part: max(one.parts.get(part, 0.0) for one in ranks) for part in PARTS}
    step = max(sum(one.parts.values()) for one in ranks)
    large = [part for part in PARTS if part != "rest" and most[part] > 0.01 * step]
    return [part for part in large if part in sorted(large, key=most.__getitem__)[-NAMED:]]


def innermost(
    spans: Sequence[tuple[str, float, float]], parts: Sequence[str], start: float, end: float
) -> list[tuple[str, float, float]]:
    """What a lane shows from start to end: of spans inside others the inner one, else the rest.

    Each pixel has the part in its middle.

    >>> innermost([("eval", 10, 40), ("input", 20, 10)], ["input", "eval"], 0, 70)
    [('rest', 0.0, 10.0), ('eval', 10.0, 20.0), ('input', 20.0, 30.0), ('eval', 30.0, 50.0), \
('rest', 50.0, 70.0)]
    """
    wide = (end - start) / PIXELS
    pixels = ["rest"] * PIXELS
    for part, a, long in sorted(spans, key=lambda one: (one[1], -one[2])):
        first, last = (math.ceil((time - start) / wide - 0.5) for time in (a, a + long))
        for at in range(max(0, first), min(PIXELS, last)):
            pixels[at] = part if part in parts else "rest"
    drawn, at = [], 0
    for part, several in groupby(pixels):
        count = len([*several])
        drawn.append((part, start + at * wide, start + (at + count) * wide))
        at += count
    return drawn


def parts_of_a_step(explanation: Explanation) -> Picture | None:
    """Draws the mean seconds of each part of a step, a bar for each rank."""
    if not explanation.ranks:
        return None
    ranks = explanation.ranks[:RANKS]
    parts = _named(ranks)
    rows = {}
    for number, one in enumerate(ranks):
        row = {PARTS[part]: one.parts.get(part, 0.0) for part in parts}
        row[PARTS["rest"]] = max(0.0, sum(one.parts.values()) - sum(row.values()))
        rows[f"rank {number}"] = row
    said = "; ".join(
        f"{name}: {', '.join(f'{part} {seconds_text(s)}' for part, s in row.items() if s)}"
        for name, row in rows.items()
    )
    board = stacked("The parts of a step", "Means of the watched run; what runs inside a compiled "
                    "step or in another thread is not seen.", rows, seconds_text,
                    explanation.kind)  # fmt: skip
    return board.picture(f"The parts of a step. {said}.")


def compare(before: Explanation, after: Explanation) -> Table:
    """Two explanations side by side: the step, its parts, and the findings that went and came."""
    both = before, after
    seen = all(one.step for one in both)
    ratio = f"{before.step / after.step:.2f} times as fast" if seen else ""
    rows = [["ranks", *(str(len(one.ranks)) for one in both), ""]]
    rows.append(["a step", *(seconds_text(one.step) for one in both), ratio])
    for part, words in PARTS.items() if seen else ():
        old, new = (_mean(one, part) for one in both)
        if max(old, new) > 0.01 * max(before.step, after.step):
            change = f"{'+' if new > old else ''}{seconds_text(new - old)}"
            rows.append([words, seconds_text(old), seconds_text(new), change])
    lines = [f"Before: {_sentence(before.verdict)}", f"After: {_sentence(after.verdict)}"]
    for key, cause in {f.key: f.cause for one in both for f in one.findings}.items():
        told = [_told(one, key, cause) for one in both]
        lines.append(f"{_sentence(cause)} Before: {told[0]}; after: {told[1]}.")
    lines.append(
        f"Before: {before.kind}; after: {after.kind}. Two runs at different times have no "
        "interval: the machine may have been busier in one of them. The batch is not compared."
    )
    return Table(("", "before", "after", "change"), rows, "", "\n".join(lines))


def _mean(one: Explanation, part: str) -> float:
    return sum(rank.parts.get(part, 0.0) for rank in one.ranks) / max(1, len(one.ranks))


def _told(one: Explanation, key: str, cause: str) -> str:
    """What an explanation says of a cause that it found, measured, or did not see."""
    for found in one.findings:
        if found.key == key:
            return f"found, {found.gain}" if found.gain else "found"
    known = {looked.cause: str(looked.gain or looked.failed) for looked in one.looked_for}
    unsure = one.verdict.startswith("cannot tell")
    return known.get(cause) or ("cannot tell" if unsure else "not found")
