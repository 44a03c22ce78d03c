"""The questions of `labkit.choosing.choose` as a decision tree."""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from labkit.kinds import modelled
from labkit.views.figure import Picture
from labkit.views.sketch import Box, Sketch

# The upper left corner of each question, of the list that is compared, and of each end.
A, B, C, D, E = 24, 154, 292, 426, 560
FIRST, SECOND, THIRD = 74, 150, 240
QUESTION_AT = {
    "tied": (A, FIRST), "enough": (B, FIRST), "fits": (C, FIRST), "worth": (D, FIRST),
    "site": (A, SECOND), "short": (C, SECOND), "stale": (D, SECOND), "pieces": (C, THIRD),
}  # fmt: skip
FASTEST_AT, FASTEST = (E, FIRST), "fastest"
END_AT = {
    ("site", True): (A, THIRD), ("site", False): (A, 306),
    ("enough", True): (B, 144), ("short", True): (B, 188),
    ("pieces", True): (B, 247), ("pieces", False): (B, 306),
    ("stale", True): (D, THIRD), ("stale", False): (D, 306),
}  # fmt: skip
WIDE, LETTERS, LINE = 110, 16, 16


def decision_tree(
    questions: Mapping[str, Any], choices: Mapping[str, Any], compared: Sequence[str],
    answers: Mapping[str, bool], choice: str,
) -> Picture:  # fmt: skip
    """The questions and the choices; the path of these answers is drawn heavy."""
    text = (f"{questions[key].text} {'Yes' if yes else 'No'}" for key, yes in answers.items())
    alt = f"The path through the decision tree: {'; '.join(text)}: {choice}."
    return tree_board(questions, choices, compared, answers).picture(alt)


def tree_board(
    questions: Mapping[str, Any], choices: Mapping[str, Any], compared: Sequence[str],
    answers: Mapping[str, bool] = MappingProxyType({}),
) -> Sketch:  # fmt: skip
    """The drawing of `decision_tree`."""
    board = Sketch(
        "When to use which",
        368,
        "Answer from the left; numbers are lectures. choose(…) asks the same with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    boxes: dict[Any, Any] = {}
    for key, at in QUESTION_AT.items():
        lines = textwrap.wrap(questions[key].text, LETTERS)
        high = 52 if len(lines) < 4 else 66
        boxes[key] = board.box(*at, WIDE, high, "\n".join(lines), size=8.5, corner=8,
                               heavy=key in answers, fill="#F6F7F8")  # fmt: skip
    names = [choices[key] for key in compared]
    heavy = answers.get("worth", False)
    text = "\n".join(["The fastest of:", *(f"{one.name}, {one.lecture:02d}" for one in names)])
    boxes[FASTEST] = board.box(*FASTEST_AT, 216, 190, text, series=2, heavy=heavy, size=8.5)
    for (key, answer), at in END_AT.items():
        end = choices[questions[key].yes if answer else questions[key].no]
        lines = [*textwrap.wrap(end.name, LETTERS), f"lecture {end.lecture:02d}"]
        heavy = answers.get(key) is answer
        boxes[key, answer] = board.box(
            *at, WIDE, 6 + LINE * len(lines), "\n".join(lines), series=2, heavy=heavy, size=8.5
        )
    for key, question in questions.items():
        for answer, after in ((True, question.yes), (False, question.no)):
            _answer(board, boxes[key], boxes.get((key, answer)) or boxes[after],
                    "yes" if answer else "no", heavy=answers.get(key) is answer)  # fmt: skip
    return board


def _answer(board: Sketch, start: Box, end: Box, word: str, *, heavy: bool) -> None:
    """An arrow between two boxes, around those that are between them, with its word."""
    middle, left = start.middle[1], end.x < start.x
    begin, stop = (start.x, end.right[0]) if left else (start.right[0], end.x)
    turn = (begin + stop) / 2
    if end.y <= middle <= end.y + end.height:  # beside it
        points, at = [(begin, middle), (stop, middle)], (turn, middle - 10)
    elif left and end.y > start.bottom[1]:
        points = [start.bottom, (start.bottom[0], end.right[1]), end.right]
        at = turn, end.right[1] - 10
    elif left:
        points = [start.left, (turn, middle), (turn, end.right[1]), end.right]
        at = turn, middle - 10
    elif end.y - start.y > 120:  # past the one below
        turn = start.right[0] + 10
        points = [start.right, (turn, middle), (turn, end.right[1]), end.right]
        at = turn - 11, end.y - 8
    else:
        points = [start.bottom, end.top]
        at = start.bottom[0] + 17, (start.bottom[1] + end.y) / 2 - 1
    board.arrow(*points, heavy=heavy)
    board.text(*at, word, size=8.5, bold=heavy, align="center")
