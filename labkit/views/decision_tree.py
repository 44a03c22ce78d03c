"""The questions of `labkit.choosing.choose` as a decision tree."""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from labkit.kinds import modelled
from labkit.views.figure import Picture
from labkit.views.sketch import Sketch

# The upper left corner of each question, of the list that is compared, and of each end.
LEFT, MIDDLE, RIGHT = 24, 297, 590
QUESTION_AT = {
    "tied": (LEFT, 80), "enough": (LEFT, 180), "fits": (LEFT, 280), "worth": (LEFT, 380),
    "site": (MIDDLE, 80), "short": (MIDDLE, 280), "pieces": (MIDDLE, 380), "stale": (MIDDLE, 480),
}  # fmt: skip
FASTEST_AT, FASTEST = (LEFT, 480), "fastest"
END_AT = {
    ("enough", True): (MIDDLE, 190), ("short", True): (RIGHT, 290),
    **{(key, answer): (RIGHT, QUESTION_AT[key][1] - 13 + 46 * (not answer))
       for key in ("site", "pieces", "stale") for answer in (True, False)},
}  # fmt: skip


def decision_tree(
    questions: Mapping[str, Any], choices: Mapping[str, Any], compared: Sequence[str],
    answers: Mapping[str, bool], choice: str,
) -> Picture:  # fmt: skip
    """The questions and the choices; the path of these answers is drawn heavy."""
    text = (f"{questions[key].text} {'Yes' if yes else 'No'}" for key, yes in answers.items())
    alt = f"The path through the decision tree: {'; '.join(text)}: {choice}."
    return tree_board(questions, choices, compared, answers, choice).picture(alt)


def tree_board(
    questions: Mapping[str, Any], choices: Mapping[str, Any], compared: Sequence[str],
    answers: Mapping[str, bool] = MappingProxyType({}), choice: str = "",
) -> Sketch:  # fmt: skip
    """The drawing of `decision_tree`."""
    board = Sketch(
        "When to use which",
        690,
        "Answer from the top. labkit.choosing.choose asks the same questions with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    boxes: dict[Any, Any] = {}
    for key, at in QUESTION_AT.items():
        text, heavy = "\n".join(textwrap.wrap(questions[key].text, 27)), key in answers
        boxes[key] = board.box(
            *at, 206, 62, text, size=9, corner=8, heavy=heavy, fill="#F6F7F8"
        )  # fmt: skip
    names = [choices[key] for key in compared]
    heavy = answers.get("worth", False)
    text = "\n".join(["The fastest of:", *(f"{one.name}, {one.lecture:02d}" for one in names)])
    boxes[FASTEST] = board.box(*FASTEST_AT, 226, 186, text, series=2, heavy=heavy, size=8.5)
    for (key, answer), at in END_AT.items():
        end = choices[questions[key].yes if answer else questions[key].no]
        text, heavy = f"{end.name}\nlecture {end.lecture:02d}", answers.get(key) is answer
        boxes[key, answer] = board.box(
            *at, 186, 42, text, series=2, heavy=heavy, bold=heavy, size=8.5
        )
    for key, question in questions.items():
        for answer, after in ((True, question.yes), (False, question.no)):
            start, end = boxes[key], boxes.get((key, answer)) or boxes[after]
            word: dict[str, Any] = {"words": "yes" if answer else "no", "size": 8.5}
            heavy = word["bold"] = answers.get(key) is answer
            if start.x == end.x:
                board.arrow(start.bottom, (start.bottom[0], end.y), heavy=heavy)
                board.text(start.bottom[0] + 8, (start.bottom[1] + end.y) / 2 - 2, **word)
                continue
            turn = start.right[0] + 36
            level = abs(start.right[1] - end.left[1]) < 1
            bends = () if level else ((turn, start.right[1]), (turn, end.left[1]))
            board.arrow(start.right, *bends, end.left, heavy=heavy)
            board.text(end.left[0] - 18, end.left[1] - 10, align="center", **word)
    return board
