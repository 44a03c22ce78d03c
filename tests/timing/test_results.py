"""The numbers, tables, pictures and files that are made from raw samples."""

import math
from dataclasses import replace

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.timing import Comparison, Run, compare, measure
from tests.timing.fake import log_of

ONE = [0.10, 0.11, 0.10, 0.12, 0.10, 0.11, 0.10, 0.10]
TWO = [0.8 * t for t in ONE]


def comparison(b, **changes):
    given = {
        "log": log_of(**{"one device": ONE, "two replicas": b}),
        "baseline": "one device",
        "items": {"one device": 64.0, "two replicas": 64.0},
        "devices": {"one device": 1, "two replicas": 2},
        "scaling": "strong",
        "same_within": 0.01,
        "unit": "images",
        "label": "synthetic MNIST",
    }
    return Comparison(**(given | changes))


def test_speedup_is_paired_by_round():
    """The machine's own ups and downs, the same for both in a round, cancel."""
    found = comparison(TWO).speedup()
    assert (found.value, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))


def test_efficiency_under_strong_scaling():
    assert comparison(TWO).efficiency("two replicas").value == pytest.approx(0.625)
    assert comparison(TWO).efficiency("one device").value == 1.0


def test_weak_scaling_counts_the_work():
    """Twice the images in 1.25 times the time: 1.6 times the throughput, 80 % efficiency."""
    b = [1.25 * t for t in ONE]
    weak = comparison(b, items={"one device": 64.0, "two replicas": 128.0}, scaling="weak")
    assert weak.speedup().value == pytest.approx(1.6)
    assert weak.efficiency().value == pytest.approx(0.8)
    assert weak.verdict().word == "faster"


def test_throughput_and_seconds_are_medians_between_quartiles():
    result = comparison(TWO)
    assert result.throughput("one device").value == pytest.approx(64 / 0.10)
    seconds, rate = result.seconds("two replicas"), result.throughput("two replicas")
    assert seconds.confidence is None
    assert (seconds.value, seconds.low) == pytest.approx((0.08, 0.08))
    assert (rate.low, rate.high) == pytest.approx((64 / seconds.high, 64 / seconds.low))
    assert "middle half" in str(seconds)


def test_several_candidates_share_the_confidence():
    log = log_of(a=ONE, b=TWO, c=TWO, d=TWO)
    result = comparison(TWO, log=log, baseline="a", items=None, devices=None, scaling=None)
    assert result.speedup("b").confidence == pytest.approx(1 - 0.05 / 3)
    assert "98.3 % interval" in str(result.verdict("c"))
    assert "all 3 together have 95 %" in str(result)
    few = log_of(a=ONE[:3], b=ONE[:3], c=ONE[:3])
    assert "together" not in str(replace(result, log=few))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda c: c.verdict("three"), "one of 'one device', 'two replicas', got 'three'"),
        (lambda c: c.verdict("one device"), "is the baseline"),
        (lambda c: replace(c, items=None).throughput(), "items="),
        (lambda c: replace(c, scaling=None, devices=None).efficiency(), "strong"),
    ],
)
def test_questions_that_have_no_answer(ask, said):
    with pytest.raises(LabError, match=said):
        ask(comparison(TWO))


def test_a_zero_from_a_coarse_clock_is_no_speedup():
    result = comparison([0.0, *TWO[1:]])
    assert result.verdict().word == "cannot tell"
    assert "unknown" in str(result.speedup())


@pytest.mark.parametrize("rounds", [1, 3])
def test_few_rounds_are_shown_and_cannot_tell(world, monkeypatch, rounds):
    """LABKIT_ROUNDS is the maximum; table, picture and numbers come from what there is."""
    monkeypatch.setenv("LABKIT_ROUNDS", str(rounds))
    works = {"a": world.work("a", 1.0), "b": world.work("b", 2.0), "c": world.work("c", 3.0)}
    result = compare(works, items=1, devices={"a": 1, "b": 2, "c": 2}, scaling="strong")
    run = measure(works["a"], items=1)
    assert result.rounds == len(run.samples) == rounds
    assert result.verdict("b").word == "cannot tell"
    assert result.speedup("b").value == pytest.approx(0.5)
    assert result.efficiency("b").value == pytest.approx(0.25)
    for shown in (result, run):
        assert shown._repr_mimebundle_()["text/plain"] == str(shown)
        assert f"{rounds} " in shown._repr_mimebundle_()["text/html"]
        assert shown.plot().png


def test_json_round_trip(world):
    works = {"a": world.work("a", 1.0), "b": world.work("b", 1.1)}
    result = compare(works, rounds=9, items={"a": 1, "b": 2}, label="täst")
    run = measure(works["a"], rounds=3)
    for one in (result, run):
        assert plain.load(plain.dump(one)) == one
    assert plain.load(plain.dump(result.verdict())) == result.verdict()


def test_this_process_has_measured_also_after_midnight():
    on = replace(log_of(a=ONE, b=ONE), on="2 logical CPUs on 2 cores")
    for result in (comparison(TWO), comparison(ONE, log=on)):
        assert result.log.machine.when.startswith("2026-11-21")  # whatever day it is today
        assert result.kind.name == "measured"
    assert str(result.kind) == "measured on 2 logical CPUs on 2 cores"


def test_what_was_stored_is_recorded_where_and_when():
    loaded = plain.load(plain.dump(comparison(TWO)))
    assert str(loaded.kind) == "recorded on 2 cores, 2026-11-21"
    assert loaded.verdict().estimate.kind.name == "recorded"
    assert "Recorded on 2 cores, 2026-11-21" in str(loaded)


def test_table_says_it_all():
    text = str(comparison(TWO))
    for part in (
        "8 rounds", "synthetic MNIST", "one device", "100 ms", "640", "800", "1.250×", "62 %",
        "strong scaling", "9.00 s", "two replicas is faster than one device", "Measured on",
        "middle half", "95 % interval",
    ):  # fmt: skip
        assert part in text


def test_html_is_a_table_and_escapes_names():
    log = log_of(**{"a<b": ONE, "b": TWO})
    result = comparison(ONE, log=log, baseline="a<b", items=None, devices=None, scaling=None)
    html = result._repr_mimebundle_()["text/html"]
    assert "a&lt;b" in html
    assert "a<b" not in html
    assert "faster</td>" in html


def test_picture_tells_its_numbers_in_words():
    picture = comparison([*TWO[:-1], 5.0]).plot()
    assert picture.png.startswith(b"\x89PNG")
    assert "one device: 100 ms (middle half: 100–110 ms)" in picture.alt
    assert "two replicas: 84.0 ms" in picture.alt
    assert "cannot tell, 1.25×" in picture.alt
    assert "two replicas is faster" in comparison(TWO).plot().alt
    assert picture.kind == comparison(ONE).kind


def test_notes_on_what_spoils_a_measurement():
    assert "loop" in str(Run(log_of(tiny=[1e-6] * 8), None, "images", ""))
    log = log_of(a=ONE)
    busy = replace(log, machine=replace(log.machine, load=3.0))
    assert "load 3.0 on 2 cores" in str(Run(busy, None, "images", ""))


def test_samples_of_an_incomplete_round_are_kept_but_not_paired():
    log = log_of(a=[*ONE, 77.0], b=ONE)
    result = comparison(ONE, log=log, baseline="a", items=None, devices=None, scaling=None)
    assert result.rounds == len(result.samples("a")) == 8
    assert result.log.of("a").samples[-1] == 77.0
    assert math.isclose(result.speedup().value, 1.0)
