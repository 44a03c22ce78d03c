"""What judges of other frameworks share: the student's function on ranks of an environment.

>>> def examine(my_step):                                             # doctest: +SKIP
...     for weights in run("torch", steps, my_step, ranks=2): ...     # steps(rank, my_step)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.cluster import Cluster
from labkit.environments import find
from labkit.exercises.task import NotJudged, Wrong
from labkit.kinds import LabError

START = 180.0  # seconds for ranks to import a framework on a busy machine
TIMEOUT = 60.0  # seconds for their program


def run(environment: str, program: Callable[..., Any], *args: Any, ranks: int = 2) -> list[Any]:
    """Call program(rank, *args) on ranks of the environment; what they return, by rank.

    The program imports what it needs itself: the environment may have another version of Python.
    """
    chosen = find(environment)
    if not chosen.stamp:
        raise NotJudged(chosen.how_to_build())
    try:
        with Cluster(ranks, environment=environment, start=START) as c:
            return c.run(program, *args, timeout=TIMEOUT, show=False)
    except LabError as fault:
        text = str(fault).replace(f"{program.__name__} had not", "It had not")
        raise Wrong(text.replace("Give it more time with timeout=, or look", "Look")) from None
