"""When to use which kind of parallelism: the questions of labkit.memory.choose as a tree."""

from __future__ import annotations

from labkit.memory.recommend import CHOICES, QUESTIONS
from labkit.views.decision_tree import tree_alt, tree_board
from labkit.views.sketch import Sketch

ALT = tree_alt(QUESTIONS, CHOICES)


def draw() -> Sketch:
    return tree_board(QUESTIONS, CHOICES)
