"""Footprints as stacked bars, and the table of questions as a decision tree."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.kinds import LabError, bytes_text, modelled
from labkit.memory.footprint import Footprint, footprint
from labkit.memory.questions import CHOICES, QUESTIONS

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.sketch import Diagram, Sketch

__all__ = ["bars", "decision_tree", "diagrams"]

# The upper left corner of each box of the tree. An answer leads to a box beside or below.
QUESTION_AT = {
    "tied": (219, 80), "fits": (219, 170),
    "several": (24, 262), "equal": (24, 360), "machines": (24, 458),
    "smaller": (414, 262), "layers": (414, 360), "shards": (414, 458), "gather": (414, 556),
}  # fmt: skip
CHOICE_AT = {
    "federated": (656, 84),
    "one_device": (266, 266), "parameter_server": (266, 364), "mirrored": (266, 462),
    "multi_worker": (67, 560),
    "accumulate": (656, 266), "nothing": (656, 364), "tensor": (656, 462), "pipeline": (656, 560),
    "sharded": (457, 658),
}  # fmt: skip


def bars(footprints: Mapping[str, Footprint], device_memory: float | None = None) -> Picture:
    """One stacked bar of bytes per footprint, under its name, against a device's memory.

    >>> bars({"MNIST": footprint(101_770)}, device_memory=16e9)     # doctest: +SKIP
    """
    if not footprints:
        raise LabError("bars needs at least one footprint, got {}.")
    from labkit.views.figure import style

    with style():
        board = _bars(footprints, device_memory)
    totals = "; ".join(f"{name} {bytes_text(one.total)}" for name, one in footprints.items())
    limit = "" if device_memory is None else f", against a device of {bytes_text(device_memory)}"
    return board.picture(f"Bytes on one device in a training step{limit}: {totals}.")


def decision_tree(answers: tuple[tuple[str, bool], ...] = ()) -> Picture:
    """The questions and the choices; the path of these answers is drawn heavy."""
    from labkit.views.figure import style

    with style():
        board = _tree(dict(answers))
    if not answers:
        return board.picture(_tree_alt())
    path = "; ".join(f"{QUESTIONS[key].text} {'Yes' if yes else 'No'}" for key, yes in answers)
    last, yes = answers[-1]
    end = CHOICES[QUESTIONS[last].yes if yes else QUESTIONS[last].no].name
    return board.picture(f"The path through the decision tree: {path}: {end}.")


def _bars(footprints: Mapping[str, Footprint], device_memory: float | None) -> Sketch:
    from labkit.views.sketch import Sketch

    names = [part.name for part in next(iter(footprints.values())).parts]
    looks = dict(zip(names, (0, 1, 2, 4, 3), strict=False))
    tallest = max([*(one.total for one in footprints.values()), 1])
    full = max(tallest, device_memory or 0)
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
    if device_memory:
        x = left + wide * device_memory / full
        board.line((x, 108), (x, bottom - 2), dashed=True, above=True)
        words = f"memory of the device, {bytes_text(device_memory)}"
        board.text(x, bottom + 12, words, size=9.5, align="right" if x > 260 else "left")
    return board


def _tree(answers: dict[str, bool]) -> Sketch:
    from labkit.views.sketch import Sketch

    board = Sketch(
        "When to use which",
        730,
        "Answer from the top. labkit.memory.choose asks the same questions with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    boxes = {}
    for key, (x, y) in QUESTION_AT.items():
        words = _lines(QUESTIONS[key].text, 27)
        boxes[key] = board.box(
            x, y, 206, 62, words, size=9, corner=8, heavy=key in answers, fill="#F6F7F8"
        )
    ends = {QUESTIONS[key].yes if yes else QUESTIONS[key].no for key, yes in answers.items()}
    for key, (x, y) in CHOICE_AT.items():
        choice = CHOICES[key]
        words = _lines(choice.name, 16)
        words += "" if choice.lecture is None else f"\nlecture {choice.lecture:02d}"
        heavy = key in ends
        boxes[key] = board.box(x, y, 120, 54, words, series=2, heavy=heavy, bold=heavy, size=8.5)
    for key, question in QUESTIONS.items():
        for answer, after in ((True, question.yes), (False, question.no)):
            start, end, heavy = boxes[key], boxes[after], answers.get(key) is answer
            word = "yes" if answer else "no"
            if start.bottom[0] == end.top[0]:
                points: tuple[tuple[float, float], ...] = (start.bottom, end.top)
                middle = (start.bottom[1] + end.top[1]) / 2 - 2
                board.text(end.top[0] + 8, middle, word, size=8.5, bold=heavy)
            else:
                right = end.x > start.x
                side = start.right if right else start.left
                beside = end.y < start.bottom[1]
                points = (side, end.left) if beside else (side, (end.top[0], side[1]), end.top)
                near = side[0] + (17 if right else -17)
                board.text(near, side[1] - 11, word, size=8.5, align="center", bold=heavy)
            board.arrow(*points, heavy=heavy)
    return board


def _lines(words: str, width: int) -> str:
    """The words in as few lines as the width allows, the lines about equally long."""
    together = words.replace(" × ", "\u00a0×\u00a0")  # a product stays on one line
    fewest = len(textwrap.wrap(together, width))
    longest = max(map(len, together.split(" ")))
    narrow = next(w for w in range(longest, width + 1) if len(textwrap.wrap(together, w)) <= fewest)
    return "\n".join(textwrap.wrap(together, narrow))


def _tree_alt() -> str:
    """The tree as numbered sentences, as the alternative text."""
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
        "decision": Diagram("01", lambda: _tree({}), _tree_alt()),
        "step_memory": Diagram(
            "01",
            _step_memory,
            "Bytes on one device for 7.5 billion parameters, by convention, against a device of "
            "80 GB. float32 SGD 60 GB: 30 weights, 30 gradients. float32 Adam 120 GB: 30, 30 and "
            "60 optimizer. Mixed Adam 120 GB: 15, 15 and 90. bfloat16 Adam 90 GB: 15, 15 and 60. "
            "Only the first fits.",
        ),
    }
