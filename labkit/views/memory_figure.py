"""Footprints as stacked bars, and the questions of `choose` as a decision tree."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from labkit.kinds import bytes_text, modelled
from labkit.views.figure import Picture
from labkit.views.sketch import Sketch

__all__ = ["bars", "bars_board", "decision_tree", "tree_alt", "tree_board"]

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


def bars(footprints: Mapping[str, Any], device_memory: float | None = None) -> Picture:
    """One stacked bar of bytes per footprint, under its name, against a device's memory."""
    totals = "; ".join(f"{name} {bytes_text(one.total)}" for name, one in footprints.items())
    limit = "" if device_memory is None else f", against a device of {bytes_text(device_memory)}"
    alt = f"Bytes on one device in a training step{limit}: {totals}."
    return bars_board(footprints, device_memory).picture(alt)


def decision_tree(
    questions: Mapping[str, Any], choices: Mapping[str, Any], answers: Mapping[str, bool]
) -> Picture:
    """The questions and the choices; the path of these answers is drawn heavy."""
    said = (f"{questions[key].text} {'Yes' if yes else 'No'}" for key, yes in answers.items())
    last, yes = list(answers.items())[-1]
    end = choices[questions[last].yes if yes else questions[last].no].name
    alt = f"The path through the decision tree: {'; '.join(said)}: {end}."
    return tree_board(questions, choices, answers).picture(alt)


def bars_board(footprints: Mapping[str, Any], device_memory: float | None) -> Sketch:
    """The drawing of `bars`."""
    names = [part.name for part in next(iter(footprints.values())).parts]
    looks = dict(zip(names, (0, 1, 2, 4, 3), strict=False))
    full = max(*(one.total for one in footprints.values()), 1, device_memory or 0)
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


def tree_board(
    questions: Mapping[str, Any],
    choices: Mapping[str, Any],
    answers: Mapping[str, bool] = MappingProxyType({}),
) -> Sketch:
    """The drawing of `decision_tree`."""
    board = Sketch(
        "When to use which",
        730,
        "Answer from the top. labkit.memory.choose asks the same questions with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    boxes = {}
    for key, (x, y) in QUESTION_AT.items():
        said = _lines(questions[key].text, 27)
        boxes[key] = board.box(
            x, y, 206, 62, said, size=9, corner=8, heavy=key in answers, fill="#F6F7F8"
        )
    ends = {questions[key].yes if yes else questions[key].no for key, yes in answers.items()}
    for key, (x, y) in CHOICE_AT.items():
        choice = choices[key]
        said = _lines(choice.name, 16)
        said += "" if choice.lecture is None else f"\nlecture {choice.lecture:02d}"
        heavy = key in ends
        boxes[key] = board.box(x, y, 120, 54, said, series=2, heavy=heavy, bold=heavy, size=8.5)
    for key, question in questions.items():
        for answer, after in ((True, question.yes), (False, question.no)):
            start, end, heavy = boxes[key], boxes[after], answers.get(key) is answer
            word: dict[str, Any] = {"words": "yes" if answer else "no", "size": 8.5, "bold": heavy}
            if start.bottom[0] == end.top[0]:
                board.arrow(start.bottom, end.top, heavy=heavy)
                board.text(end.top[0] + 8, (start.bottom[1] + end.top[1]) / 2 - 2, **word)
                continue
            side, out = (start.right, 17) if end.x > start.x else (start.left, -17)
            beside = end.y < start.bottom[1]
            points = (end.left,) if beside else ((end.top[0], side[1]), end.top)
            board.arrow(side, *points, heavy=heavy)
            board.text(side[0] + out, side[1] - 11, align="center", **word)
    return board


def _lines(said: str, width: int) -> str:
    """The said in as few lines as the width allows, the lines about equally long."""
    together = said.replace(" × ", "\u00a0×\u00a0")  # a product stays on one line
    fewest = len(textwrap.wrap(together, width))
    longest = max(map(len, together.split(" ")))
    narrow = next(w for w in range(longest, width + 1) if len(textwrap.wrap(together, w)) <= fewest)
    return "\n".join(textwrap.wrap(together, narrow))


def tree_alt(questions: Mapping[str, Any], choices: Mapping[str, Any]) -> str:
    """The tree as numbered sentences, as the alternative text."""

    def end(key: str) -> str:
        return choices[key].name if key in choices else f"ask “{questions[key].text}”"

    return "The decision tree. " + " ".join(
        f"{one.text} Yes: {end(one.yes)}. No: {end(one.no)}." for one in questions.values()
    )
