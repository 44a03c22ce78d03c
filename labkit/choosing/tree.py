"""The questions of `labkit.choosing.choose` as a decision tree."""

import textwrap
from collections.abc import Mapping
from typing import Any

from labkit.choosing.choices import CHOICES, COMPARED, FASTEST, QUESTIONS
from labkit.kinds import modelled
from labkit.views.figure import Picture
from labkit.views.sketch import Box, Sketch

# The upper left corner of each question, of the list that is compared, and of each end.
A, B, C, D, E = 20, 154, 291, 427, 563
FIRST, SECOND, THIRD = 74, 150, 240
QUESTION_AT = {
    "tied": (A, FIRST), "enough": (B, FIRST), "fits": (C, FIRST), "worth": (D, FIRST),
    "site": (A, SECOND), "short": (C, SECOND), "stale": (D, SECOND), "pieces": (C, THIRD),
}  # fmt: skip
FASTEST_AT = E, FIRST
END_AT = {
    ("site", True): (A, THIRD), ("site", False): (A, 306),
    ("enough", True): (B, 144), ("short", True): (B, 188),
    ("pieces", True): (B, 247), ("pieces", False): (B, 306),
    ("stale", True): (D, THIRD), ("stale", False): (D, 306),
}  # fmt: skip
WIDE, LETTERS, LINE = 108, 15, 16


def decision_tree(answers: Mapping[str, bool], choice: str) -> Picture:
    """Returns the questions and the choices; the path of these answers is drawn heavy."""
    text = (f"{QUESTIONS[key].text} {'Yes' if yes else 'No'}" for key, yes in answers.items())
    alt = f"The path through the decision tree: {'; '.join(text)}: {choice}."
    return board_of(answers).picture(alt)


def board_of(answers: Mapping[str, bool]) -> Sketch:
    """Returns the drawing of `decision_tree`."""
    board = Sketch(
        "When to use which",
        368,
        "Answer from the left; numbers are lectures. choose(…) asks the same with your numbers.",
        kind=modelled("byte counts and link speeds"),
    )
    boxes: dict[Any, Any] = {}
    for key, at in QUESTION_AT.items():
        lines = textwrap.wrap(QUESTIONS[key].text, LETTERS)
        high = 52 if len(lines) < 4 else 66
        boxes[key] = board.box(*at, WIDE, high, "\n".join(lines), size=8.5, corner=8,
                               heavy=key in answers, fill="#F6F7F8")  # fmt: skip
    names = [CHOICES[key] for key in COMPARED]
    heavy = answers.get("worth", False)
    text = "\n".join(["The fastest of:", *(f"{one.name}, {one.lecture:02d}" for one in names)])
    boxes[FASTEST] = board.box(*FASTEST_AT, 216, 222, text, series=2, heavy=heavy, size=8.5)
    for (key, answer), at in END_AT.items():
        end = CHOICES[QUESTIONS[key].yes if answer else QUESTIONS[key].no]
        lines = [*textwrap.wrap(end.name, LETTERS), f"lecture {end.lecture:02d}"]
        heavy = answers.get(key) is answer
        boxes[key, answer] = board.box(
            *at, WIDE, 6 + LINE * len(lines), "\n".join(lines), series=2, heavy=heavy, size=8.5
        )
    for key, question in QUESTIONS.items():
        for answer, after in ((True, question.yes), (False, question.no)):
            _answer(board, boxes[key], boxes.get((key, answer)) or boxes[after],
                    "yes" if answer else "no", heavy=answers.get(key) is answer)  # fmt: skip
    return board


def _answer(board: Sketch, start: Box, end: Box, word: str, *, heavy: bool) -> None:
    """Draw an arrow with its word from one box to another, around those between them."""
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
        turn = start.right[0] + 7
        points = [start.right, (turn, middle), (turn, end.right[1]), end.right]
        at = turn + 10, end.y - 8
    else:
        points = [start.bottom, end.top]
        at = start.bottom[0] + 17, (start.bottom[1] + end.y) / 2 - 1
    board.arrow(*points, heavy=heavy)
    board.text(*at, word, size=8.5, bold=heavy, align="center")
