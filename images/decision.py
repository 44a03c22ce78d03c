"""When to use which kind of parallelism: the questions of labkit.choosing.choose as a tree."""

from __future__ import annotations

from labkit.choosing.choices import CHOICES, COMPARED, FASTEST, QUESTIONS
from labkit.choosing.tree import board_of
from labkit.views.sketch import Sketch

THE_FASTEST = f"the fastest of {', '.join(CHOICES[key].name for key in COMPARED)}"


def _end(key: str) -> str:
    if key == FASTEST:
        return THE_FASTEST
    return CHOICES[key].name if key in CHOICES else f"ask “{QUESTIONS[key].text}”"


ALT = "The decision tree. " + " ".join(
    f"{one.text} Yes: {_end(one.yes)}. No: {_end(one.no)}." for one in QUESTIONS.values()
)


def draw() -> Sketch:
    return board_of({})
