"""The questions of `labkit.choosing.choose` as a decision tree."""

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from labkit.kinds import modelled
from labkit.views.figure import Picture
from labkit.views.sketch import Sketch

# The upper left corner of each box of the tree. An answer leads to a box beside or below; "One
# device" is beside three questions.
ROWS = [262 + 92 * row for row in range(7)]
FIT = ("enough", "several", "pays", "equal", "machines")
LARGE = ("smaller", "host", "layers", "example", "sharding", "groups", "whole")
QUESTION_AT = {
    "tied": (219, 80), "fits": (219, 170),
    **{key: (24, y) for key, y in zip(FIT, ROWS, strict=False)},
    **{key: (414, y) for key, y in zip(LARGE, ROWS, strict=True)},
}  # fmt: skip
BESIDE = ("accumulate", "central", "nothing", "spatial", "sharded", "hybrid", "pipeline")
CHOICE_AT = {
    "federated": (656, 84), "one_device": (266, ROWS[0] + 4),
    "parameter_server": (266, ROWS[3] + 4), "mirrored": (266, ROWS[4] + 4),
    "multi_worker": (67, ROWS[5] + 4), "tensor": (457, ROWS[6] + 92),
    **{key: (656, y + 4) for key, y in zip(BESIDE, ROWS, strict=True)},
}  # fmt: skip
TALL = {"one_device": 2 * 92 + 54}


def decision_tree(
    questions: Mapping[str, Any], choices: Mapping[str, Any], answers: Mapping[str, bool]
) -> Picture:
    """The questions and the choices; the path of these answers is drawn heavy."""
    text = (f"{questions[key].text} {'Yes' if yes else 'No'}" for key, yes in answers.items())
    last, yes = list(answers.items())[-1]
    end = choices[questions[last].yes if yes else questions[last].no].name
    alt = f"The path through the decision tree: {'; '.join(text)}: {end}."
    return tree_board(questions, choices, answers).picture(alt)


def tree_board(
    questions: Mapping[str, Any],
    choices: Mapping[str, Any],
    answers: Mapping[str, bool] = MappingProxyType({}),
) -> Sketch:
    """The drawing of `decision_tree`."""
    board = Sketch(
        "When to use which",
        990,
        "Answer from the top. labkit.choosing.choose asks the same questions with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    boxes = {}
    for key, (x, y) in QUESTION_AT.items():
        text = _lines(questions[key].text, 27)
        boxes[key] = board.box(
            x, y, 206, 62, text, size=9, corner=8, heavy=key in answers, fill="#F6F7F8"
        )
    ends = {questions[key].yes if yes else questions[key].no for key, yes in answers.items()}
    for key, (x, y) in CHOICE_AT.items():
        choice = choices[key]
        text = _lines(choice.name, 16)
        text += f"\nlecture {choice.lecture:02d}"
        heavy, height = key in ends, TALL.get(key, 54)
        boxes[key] = board.box(x, y, 120, height, text, series=2, heavy=heavy, bold=heavy, size=8.5)
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
            points = ((end.x, side[1]),) if beside else ((end.top[0], side[1]), end.top)
            board.arrow(side, *points, heavy=heavy)
            board.text(side[0] + out, side[1] - 11, align="center", **word)
    return board


def _lines(text: str, width: int) -> str:
    """The text in as few lines as the width allows, the lines about equally long."""
    together = text.replace(" × ", "\u00a0×\u00a0")  # a product stays on one line
    fewest = len(textwrap.wrap(together, width))
    longest = max(map(len, together.split(" ")))
    narrow = next(w for w in range(longest, width + 1) if len(textwrap.wrap(together, w)) <= fewest)
    return "\n".join(textwrap.wrap(together, narrow))
