"""Timing: how long something takes, which of two is faster, and how sure one can be.

>>> result = compare({"sum": lambda: sum(range(9999)), "len": lambda: len(range(9999))},
...                  rounds=8, seed=1)
>>> result.speedup().value > 1
True

Bottom up: `intervals` and `judge` are the statistics, `results` what you hold and see, `clock`
times one call, `rounds` decides what is called when, `prediction` holds your guess beside it,
and `chain` keeps when it was made.
"""

from labkit.timing.estimate import Estimate
from labkit.timing.prediction import Prediction, PredictionOutcome, predict
from labkit.timing.results import Timings
from labkit.timing.rounds import compare, measure
from labkit.timing.verdict import Verdict, judge
