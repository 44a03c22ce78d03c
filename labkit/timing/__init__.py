"""Timing: how long something takes, which of two is faster, and how sure one can be.

>>> result = compare({"sum": lambda: sum(range(9999)), "len": lambda: len(range(9999))},
...                  rounds=8, seed=1)
>>> print(result.verdict().word)
faster

`clock` times one call, `rounds` decides what is called when, `log` keeps it raw; `intervals`
and `judge` are the statistics; `results` and `report` are what you get and see; `guess` holds
your prediction beside it.
"""

from labkit.timing.ask import compare, measure
from labkit.timing.estimate import Estimate
from labkit.timing.guess import Outcome, Prediction, predict
from labkit.timing.judge import Verdict, judge
from labkit.timing.results import Comparison, Run, load

__all__ = [
    "Comparison",
    "Estimate",
    "Outcome",
    "Prediction",
    "Run",
    "Verdict",
    "compare",
    "judge",
    "load",
    "measure",
    "predict",
]
