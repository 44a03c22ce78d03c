"""Footprints as stacked bars, and the decision as a tree, drawn from the table that decides."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.kinds import LabError, bytes_text, modelled
from labkit.memory.footprint import Footprint, footprint
from labkit.memory.questions import CHOICES, FIRST, QUESTIONS

if TYPE_CHECKING:
    from labkit.memory.decision import Decision
    from labkit.views.figure import Picture
    from labkit.views.sketch import Box, Diagram, Sketch

__all__ = ["bars", "decision_tree", "diagrams"]

# Where the two columns of the tree begin, how wide a question is, how far apart they stand.
LEFT, RIGHT, ASK, TOP, PITCH = 24.0, 414.0, 206.0, 262.0, 98.0


def bars(footprints: Mapping[str, Footprint], device_memory: float | None = None) -> Picture:
    """One stacked bar of bytes per footprint, under its name, against a device's memory.

    >>> bars({"MNIST": footprint(101_770)}, device_memory=16e9)     # doctest: +SKIP
    """
    if not footprints:
        raise LabError('There is no footprint to draw. Write bars({"name": footprint(...)}).')
    from labkit.views.figure import style

    with style():
        board = _bars(footprints, device_memory)
    said = "; ".join(f"{name} {bytes_text(one.total)}" for name, one in footprints.items())
    limit = "" if device_memory is None else f", against a device of {bytes_text(device_memory)}"
    return board.picture(f"Bytes on one device in a training step{limit}: {said}.")


def decision_tree(decision: Decision | None = None) -> Picture:
    """The questions in order. With a decision, the way that its facts took is drawn heavy."""
    from labkit.views.figure import style

    with style():
        board = _tree(() if decision is None else decision.answers)
    if decision is None:
        return board.picture(_tree_alt())
    way = "; ".join(
        f"{QUESTIONS[key].text} {'Yes' if answer else 'No'}" for key, answer in decision.answers
    )
    return board.picture(f"The way through the decision tree: {way}: {decision.choice}.")


def _bars(footprints: Mapping[str, Footprint], device_memory: float | None) -> Sketch:
    from labkit.views.sketch import Sketch

    names = [part.name for part in next(iter(footprints.values())).parts]
    looks = dict(zip(names, (0, 1, 2, 4, 3), strict=False))
    tallest = max([*(one.total for one in footprints.values()), 1])
    # Beside a far larger device the bars would vanish: then a sentence compares them.
    dwarfed = device_memory is not None and device_memory > 20 * tallest
    full = tallest if dwarfed else max(tallest, device_memory or 0)
    bottom = 118.0 + 74 * len(footprints)
    board = Sketch(
        "Memory of one training step",
        bottom + (30 if device_memory else 6),
        "Bytes on one device, by what holds them.",
        kind=modelled("bytes per parameter and per example, counted, not timed"),
    )
    left, wide = 24.0, 672.0
    x = left
    for name in names:
        if any(one[name] for one in footprints.values()):
            board.box(x, 79, 20, 12, series=looks[name], hatch=True, corner=1.5)
            board.text(x + 27, 85, name, size=9)
            x += 56 + 7.6 * len(name)
    for row, (name, one) in enumerate(footprints.items()):
        y = 120.0 + 74 * row
        board.text(left, y, name, bold=True, size=9.5)
        x = left
        for part in one.parts:
            width = wide * part.bytes / full
            if width >= 1:
                board.box(
                    x, y + 14, width, 34, bytes_text(part.bytes) if width > 64 else "",
                    series=looks[part.name], hatch=True, size=8.5, corner=min(1.5, width / 4),
                )  # fmt: skip
            x += width
        board.text(x + 10, y + 31, bytes_text(one.total), size=9.5)
    if device_memory and dwarfed:
        share = f"less than {100 * 1.05 * tallest / device_memory:.1g} % of a device's"
        board.text(left, bottom + 12, f"{share} {bytes_text(device_memory)}", size=9.5, faint=True)
    elif device_memory:
        x = left + wide * device_memory / full
        board.line((x, 108), (x, bottom - 2), dashed=True, above=True)
        words = f"memory of the device, {bytes_text(device_memory)}"
        board.text(x, bottom + 12, words, size=9.5, align="right" if x > 260 else "left")
    return board


def _tree(answers: tuple[tuple[str, bool], ...]) -> Sketch:
    """Two questions on top, then two columns; each question sends one answer to the side."""
    from labkit.views.sketch import Sketch

    walked = dict(answers)
    second = _onward(FIRST)
    columns = (_chain(QUESTIONS[second].yes), _chain(QUESTIONS[second].no))
    height = TOP + PITCH * max(len(column) for column in columns) + 76
    board = Sketch(
        "When to use which",
        height,
        "Answer from the top. labkit.memory.choose asks the same questions with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    first = _question(board, FIRST, 219, 80, FIRST in walked)
    fits = _question(board, second, 219, 170, second in walked)
    side = QUESTIONS[FIRST].yes if second == QUESTIONS[FIRST].no else QUESTIONS[FIRST].no
    leaf = _leaf(board, side, RIGHT + ASK + 36, 84, _ends(answers) == side)
    _way(board, walked, FIRST, side, (first.right, leaf.left))
    _way(board, walked, FIRST, second, (first.bottom, fits.top))
    for column, x, edge in zip(columns, (LEFT, RIGHT), ("left", "right"), strict=True):
        boxes = [
            _question(board, key, x, TOP + PITCH * row, key in walked)
            for row, key in enumerate(column)
        ]
        start = fits.left if edge == "left" else fits.right
        _way(board, walked, second, column[0], (start, (boxes[0].top[0], start[1]), boxes[0].top))
        for row, (key, box) in enumerate(zip(column, boxes, strict=True)):
            for after in (QUESTIONS[key].yes, QUESTIONS[key].no):
                if after in QUESTIONS:
                    _way(board, walked, key, after, (box.bottom, boxes[row + 1].top))
                    continue
                below = row == len(column) - 1 and after == _last(key)
                corner = (x + 28, box.y + PITCH) if below else (x + ASK + 36, box.y + 4)
                made = _leaf(board, after, *corner, _ends(answers) == after, 150 if below else 120)
                points = (box.bottom, made.top) if below else (box.right, made.left)
                _way(board, walked, key, after, points)
    return board


def _onward(key: str) -> str:
    """Where a question with one side exit leads on."""
    onward = [after for after in (QUESTIONS[key].yes, QUESTIONS[key].no) if after in QUESTIONS]
    if len(onward) != 1:
        raise ValueError(f"the picture has no place for the two ways on from {key!r}")
    return onward[0]


def _chain(key: str) -> list[str]:
    """The questions of a column, from `key` down."""
    chain = [key]
    while any(after in QUESTIONS for after in (QUESTIONS[key].yes, QUESTIONS[key].no)):
        key = _onward(key)
        chain.append(key)
    return chain


def _last(key: str) -> str:
    """The choice that stands below the last question of a column."""
    return QUESTIONS[key].yes


def _ends(answers: tuple[tuple[str, bool], ...]) -> str:
    if not answers:
        return ""
    key, answer = answers[-1]
    return QUESTIONS[key].yes if answer else QUESTIONS[key].no


def _question(board: Sketch, key: str, x: float, y: float, heavy: bool) -> Box:
    words = _lines(QUESTIONS[key].text, 27)
    return board.box(x, y, ASK, 62, words, size=9, corner=8, heavy=heavy, fill="#F6F7F8")


def _leaf(board: Sketch, key: str, x: float, y: float, heavy: bool, width: float = 120) -> Box:
    choice = CHOICES[key]
    taught = "" if choice.lecture is None else f"\nlecture {choice.lecture:02d}"
    words = _lines(choice.name, 16 if width < 130 else 20) + taught
    return board.box(x, y, width, 54, words, series=2, heavy=heavy, bold=heavy, size=8.5)


def _way(
    board: Sketch,
    walked: dict[str, bool],
    key: str,
    after: str,
    points: tuple[tuple[float, float], ...],
) -> None:
    """The arrow of one answer, with its yes or no near the question that it leaves."""
    answer = QUESTIONS[key].yes == after
    heavy = walked.get(key) is answer
    board.arrow(*points, heavy=heavy)
    (x0, y0), (x1, y1) = points[:2]
    word = "yes" if answer else "no"
    if y0 == y1:
        near = x0 + (17 if x1 > x0 else -17)
        board.text(near, y0 - 11, word, size=8.5, align="center", bold=heavy)
    else:
        board.text(x0 + 8, (y0 + points[-1][1]) / 2 - 2, word, size=8.5, bold=heavy)


def _lines(words: str, width: int) -> str:
    """The words in as few lines as the width allows, the lines about equally long."""
    # A product stays on one line.
    whole = words.replace(" × ", "\u00a0×\u00a0")
    fewest = len(textwrap.wrap(whole, width))
    narrow = next(w for w in range(1, width + 1) if len(textwrap.wrap(whole, w)) <= fewest)
    return "\n".join(textwrap.wrap(whole, max(narrow, *map(len, whole.split(" ")))))


def _tree_alt() -> str:
    """The tree as numbered sentences, for those who do not see it."""
    sentences = []
    for question in QUESTIONS.values():
        ends = [
            CHOICES[after].name if after in CHOICES else f"ask “{QUESTIONS[after].text}”"
            for after in (question.yes, question.no)
        ]
        sentences.append(f"{question.text} Yes: {ends[0]}. No: {ends[1]}.")
    return "The decision tree. " + " ".join(sentences)


def _step_memory() -> Sketch:
    names = ("float32 sgd", "float32 adam", "mixed adam 16", "bfloat16 adam 12")
    steps = {f"7.5 billion parameters, {name}": footprint(7.5e9, convention=name) for name in names}
    return _bars(steps, 80e9)


def diagrams() -> dict[str, Diagram]:
    """The pictures of this room for the folder of images."""
    from labkit.views.sketch import Diagram

    return {
        "decision": Diagram("01", lambda: _tree(()), _tree_alt()),
        "step_memory": Diagram(
            "01",
            _step_memory,
            "Bytes on one device for 7.5 billion parameters, by convention, against a device of "
            "80 GB. float32 SGD 60 GB: 30 weights, 30 gradients. float32 Adam 120 GB: 30, 30 and "
            "60 optimizer. Mixed Adam 120 GB: 15, 15 and 90. bfloat16 Adam 90 GB: 15, 15 and 60. "
            "Only the first fits.",
        ),
    }
