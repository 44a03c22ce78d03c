"""The numbers, tables and pictures that are made from raw samples."""

from dataclasses import replace

import pytest

from labkit.kinds import LabError, measured
from labkit.timing import compare, measure
from labkit.timing.results import Timed, Timings

ONE = (0.10, 0.11, 0.10, 0.12, 0.10, 0.11, 0.10, 0.10)
TWO = tuple(0.8 * t for t in ONE)


def timings(*, one=64.0, scaling="strong", label="synthetic MNIST", **others):
    """The baseline "one device", and others as (samples, images)."""
    timed = [Timed("one device", 9.0, ONE, one, 1)]
    timed += [
        Timed(name.replace("_", " "), 9.0, tuple(samples), items, 2)
        for name, (samples, items) in others.items()
    ]
    kind = measured("2 logical CPUs on 2 cores")
    return Timings(tuple(timed), "one device", scaling, "images", label, kind, ())


STRONG = timings(two_replicas=(TWO, 64.0))


def test_speedup_is_paired_by_round():
    """The machine's own ups and downs, the same for both in a round, cancel."""
    found = STRONG.speedup()
    assert (found.value, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))


def test_weak_scaling_counts_the_work():
    """Twice the images in 1.25 times the time: 1.6 times the throughput, 80 % efficiency."""
    weak = timings(two_replicas=([1.25 * t for t in ONE], 128.0), scaling="weak")
    assert weak.speedup().value == pytest.approx(1.6)
    assert weak.efficiency().value == pytest.approx(0.8)
    assert weak.verdict().word == "faster"


def test_throughput_and_seconds_are_medians_between_quartiles():
    assert STRONG.throughput("one device").value == pytest.approx(64 / 0.10)
    seconds, rate = STRONG.seconds("two replicas"), STRONG.throughput("two replicas")
    assert (seconds.value, seconds.low) == pytest.approx((0.08, 0.08))
    assert (rate.low, rate.high) == pytest.approx((64 / seconds.high, 64 / seconds.low))


def test_several_programs_share_the_confidence():
    result = timings(b=(TWO, None), c=(TWO, None), d=(TWO, None), one=None, scaling=None)
    assert result.speedup("b").confidence == pytest.approx(1 - 0.05 / 3)
    assert "98.3 % interval" in str(result.verdict("c"))
    assert "all 3 together have 95 %" in str(result)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: STRONG.verdict("three"), "one of 'one device', 'two replicas', got 'three'"),
        (lambda: STRONG.verdict("one device"), "is the baseline"),
        (lambda: timings(b=(TWO, None), one=None).throughput(), "items="),
        (lambda: replace(STRONG, scaling=None).efficiency(), "strong"),
    ],
)
def test_questions_that_have_no_answer(ask, said):
    with pytest.raises(LabError, match=said):
        ask()


@pytest.mark.parametrize("rounds", [1, 3])
def test_few_rounds_are_shown_and_cannot_tell(world, monkeypatch, rounds):
    """LABKIT_ROUNDS is the maximum; table and numbers come from what there is."""
    monkeypatch.setenv("LABKIT_ROUNDS", str(rounds))
    works = {"a": world.work("a", 1.0), "b": world.work("b", 2.0), "c": world.work("c", 3.0)}
    result = compare(works, items=1, devices={"a": 1, "b": 2, "c": 2}, scaling="strong")
    run = measure(works["a"], items=1)
    assert result.rounds == len(run.samples()) == rounds
    assert world.calls.count("b") == 1 + min(rounds, 2) + rounds
    assert result.verdict("b").word == "cannot tell"
    assert result.speedup("b").value == pytest.approx(0.5)
    assert result.efficiency("b").value == pytest.approx(0.25)
    assert "together" not in str(result)
    for shown in (result, run):
        assert shown._repr_mimebundle_()["text/plain"] == str(shown)
        assert f"{rounds} " in shown._repr_mimebundle_()["text/html"]


def test_a_table_holds_the_numbers_of_each_program():
    for part in ("8 rounds", "100 ms", "640", "800", "1.250×", "62 %", "9.00 s"):
        assert part in str(STRONG)


def test_notes_on_what_spoils_a_measurement(world, monkeypatch):
    monkeypatch.setattr("labkit.hardware.machine.busy", lambda seconds: 0.99)
    text = str(measure(world.work("tiny", 1e-6), rounds=3))
    assert "loop" in text
    assert "99 % of its cores" in text
    verdicts = compare({"a": world.work("a", 1.0), "b": world.work("b", 2.0)}, rounds=3)
    card, _, _ = verdicts._repr_mimebundle_()["text/html"].partition("<details>")
    assert "99 % of its cores" in card  # seen beside the verdict that it spoils
