"""Predict first: the guess is checked before, and shown beside the result after."""

import numpy as np
import pytest

from labkit.kinds import LabError, measured, modelled, recorded
from labkit.timing import Estimate, predict

MINE = predict("speed-up of 2 replicas", 1.8, unit="×")
FOUND = Estimate(0.84, 0.80, 0.88, "×", 0.95, measured("here"))


def test_kinds():
    away = Estimate(0.9, 0.8, 1.0, "×", 0.95, recorded("H200", "2026-11-21"))
    assert "recorded 0.90×" in str(MINE.against(away))
    for seven in (7, np.int64(7)):
        assert "counted 7 steps" in str(predict("steps", 3, unit="steps").against(seven))
    assert "modelled 0.90×" in str(MINE.against(0.9, kind="modelled"))
    # Imported here: predictions know nothing of collectives.
    from labkit.collectives.clock import Seconds

    found = predict("time", 2, unit="ms").against(Seconds(0.004, modelled("a ring")))
    assert str(found) == "You guessed 2.00 ms; modelled 4.00 ms: off by a factor of 2."


def test_quartiles_are_no_interval_for_a_guess():
    calls = Estimate(0.5, 0.4, 0.6, "s", None, measured("here"))
    assert "interval" not in str(predict("time", 0.5, unit="s").against(calls))
    found = predict("speed-up", 0.85, unit="×").against(FOUND)
    assert "inside the interval" in str(found)


def test_units_are_converted_where_they_can_be():
    second = Estimate(0.5, 0.4, 0.6, "s", 0.95, measured("here"))
    found = predict("time of an epoch", 250, unit="ms").against(second)
    assert (found.value, found.factor) == (500, 2)
    assert "You guessed 250 ms; measured 500 ms (400–600 ms)" in str(found)
    share = Estimate(0.42, 0.40, 0.44, "share", 0.95, measured("here"))
    assert predict("efficiency", 84, unit="%").against(share).factor == pytest.approx(2)
    with pytest.raises(LabError, match="unit='s'"):
        MINE.against(second)


def test_without_a_guess_the_question_stands_first_and_then_the_result():
    empty = predict("speed-up", unit="×")
    assert str(empty) == "Your guess first: speed-up (×)."
    assert str(empty.against(FOUND)).startswith("Measured 0.84×")
    assert "othing was measured" in str(MINE.against(float("nan")))


def test_what_is_no_result():
    with pytest.raises(LabError, match="needs a number"):
        MINE.against("fast")
    with pytest.raises(LabError, match="between"):
        predict("speed-up", between=(5, 2))
    assert str(predict("failures", 0).against(2)) == "You guessed 0; counted 2."
