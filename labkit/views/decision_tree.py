"""The questions of `labkit.memory.choose` as a decision tree."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from labkit.kinds import modelled
from labkit.views.figure import Picture
from labkit.views.sketch import Sketch

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


def decision_tree(
    questions: Mapping[str, Any], choices: Mapping[str, Any], answers: Mapping[str, bool]
) -> Picture:
    """The questions and the choices; the path of these answers is drawn heavy."""
    said = (f"{questions[key].text} {'Yes' if yes else 'No'}" for key, yes in answers.items())
    last, yes = list(answers.items())[-1]
    end = choices[questions[last].yes if yes else questions[last].no].name
    alt = f"The path through the decision tree: {'; '.join(said)}: {end}."
    return tree_board(questions, choices, answers).picture(alt)


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
