"""The numbers, tables, pictures and files that are made from raw samples."""

import json
import math
import os
import stat
from dataclasses import replace

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.timing import Comparison, Run, compare, load, measure
from tests.timing.fake import World, log_of

ONE = [0.10, 0.11, 0.10, 0.12, 0.10, 0.11, 0.10, 0.10]


def comparison(b, **changes):
    given = {
        "log": log_of(**{"one device": ONE, "two replicas": b}),
        "baseline": "one device",
        "items": {"one device": 64.0, "two replicas": 64.0},
        "devices": {"one device": 1, "two replicas": 2},
        "scaling": "strong",
        "same_within": 0.01,
        "confidence": 0.98,
        "unit": "images",
        "label": "MNIST stand-in",
    }
    return Comparison(**(given | changes))


def times(factor):
    return [factor * t for t in ONE]


def test_speedup_is_paired_by_round():
    """The machine's own ups and downs, the same for both in a round, cancel."""
    found = comparison(times(0.8)).speedup()
    assert (found.value, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))


def test_efficiency_under_strong_scaling():
    assert comparison(times(0.8)).efficiency("two replicas").value == pytest.approx(0.625)
    assert comparison(times(0.8)).efficiency("one device").value == 1.0


def test_weak_scaling_counts_the_work():
    """Twice the images in 1.25 times the time: 1.6 times the throughput, 80 % efficiency."""
    weak = comparison(
        times(1.25), items={"one device": 64.0, "two replicas": 128.0}, scaling="weak"
    )
    assert weak.speedup().value == pytest.approx(1.6)
    assert weak.efficiency().value == pytest.approx(0.8)
    assert weak.verdict().word == "faster"
    without_items = comparison(times(1.25), items=None, scaling="weak")
    assert without_items.speedup().value == pytest.approx(1.6)


def test_seconds_and_throughput():
    result = comparison(times(0.5))
    assert result.seconds("one device").value == pytest.approx(0.10)
    assert result.throughput("two replicas").value == pytest.approx(1280)
    rate = result.throughput("one device")
    assert rate.low <= rate.value <= rate.high
    assert str(rate).startswith("640 images/s")


def test_verdict_between_any_two():
    result = comparison(times(0.8))
    assert result.verdict("two replicas").word == "faster"
    assert result.verdict("one device", over="two replicas").word == "slower"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda c: c.verdict("three"), "no candidate 'three'"),
        (lambda c: c.verdict("one device"), "compared with itself"),
        (lambda c: replace(c, items=None).throughput(), "items="),
        (lambda c: replace(c, scaling=None, devices=None).efficiency(), "strong"),
    ],
)
def test_questions_that_have_no_answer(ask, said):
    with pytest.raises(LabError, match=said):
        ask(comparison(times(0.8)))


def test_a_zero_from_a_coarse_clock_is_no_speedup():
    assert comparison([0.0, *times(0.8)[1:]]).verdict().word == "cannot tell"
    assert "unknown" in str(comparison([0.0, *times(0.8)[1:]]).speedup())


def test_json_round_trip(tmp_path):
    world = World()
    works = {"a": world.work("a", 1.0), "b": world.work("b", 1.1)}
    result = compare(works, rounds=9, items={"a": 1, "b": 2}, label="täst", _clock=world.clock)
    result.save(tmp_path / "c.json")
    assert load(tmp_path / "c.json") == result
    run = measure(works["a"], rounds=3, _clock=world.clock)
    run.save(tmp_path / "r.json")
    again = load(tmp_path / "r.json")
    assert again == run
    assert isinstance(again, Run)
    assert plain.load(plain.dump(result.verdict())) == result.verdict()


def test_raw_samples_and_machine_facts_are_in_the_file(tmp_path):
    comparison(times(0.8)).save(tmp_path / "c.json")
    log = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["value"]["log"]
    assert log["timed"][0]["samples"] == ONE
    assert log["timed"][0]["first"] == [9.0]
    assert len(log["order"]) == 8
    assert set(log["machine"]) == {"text", "versions", "when", "load", "cores"}


def test_what_was_timed_here_today_is_measured():
    assert comparison(times(0.8)).kind.name == "measured"
    on = replace(log_of(a=ONE, b=ONE), on="2 logical CPUs on 2 cores")
    assert str(comparison(ONE, log=on).kind) == "measured on 2 logical CPUs on 2 cores"


@pytest.mark.parametrize(
    "change", [{"text": "another machine"}, {"when": "2020-02-02 10:00:00+00:00"}]
)
def test_what_comes_from_elsewhere_or_earlier_is_recorded(tmp_path, change):
    result = comparison(times(0.8))
    away = replace(result.log, machine=replace(result.log.machine, **change))
    replace(result, log=away).save(tmp_path / "c.json")
    kind = load(tmp_path / "c.json").kind
    assert kind.name == "recorded"
    assert kind.source == f"{away.machine.text}, {away.machine.when[:10]}"
    assert f"Recorded on {kind.source}" in str(load(tmp_path / "c.json"))


def test_files_that_are_not_timings(tmp_path):
    (tmp_path / "no.json").write_text("{}", encoding="utf-8")
    with pytest.raises(LabError, match="not a file that labkit wrote"):
        load(tmp_path / "no.json")
    with pytest.raises(LabError, match="cannot be read"):
        load(tmp_path / "missing.json")
    (tmp_path / "verdict.json").write_text(plain.dump(comparison(ONE).verdict()), encoding="utf-8")
    with pytest.raises(LabError, match="holds a Verdict"):
        load(tmp_path / "verdict.json")
    with pytest.raises(LabError, match="cannot be written"):
        comparison(ONE).save(tmp_path / "no folder" / "c.json")


def test_table_says_it_all():
    text = str(comparison(times(0.8)))
    for part in (
        "8 rounds", "MNIST stand-in", "one device", "100 ms", "640", "800", "1.250×", "62 %",
        "strong scaling", "9.00 s", "two replicas is faster than one device", "Measured on",
    ):  # fmt: skip
        assert part in text


def test_html_is_a_table_and_escapes_names():
    log = log_of(**{"a<b": ONE, "b": times(0.8)})
    result = comparison(ONE, log=log, baseline="a<b", items=None, devices=None, scaling=None)
    shown = result._repr_mimebundle_()
    assert shown["text/plain"] == str(result)
    assert "a&lt;b" in shown["text/html"]
    assert "a<b" not in shown["text/html"]
    assert '>b</th>' in shown["text/html"]
    assert "<td>faster</td>" in shown["text/html"]
    assert repr(result) == "Comparison(a<b, b; 8 rounds)"


def test_picture_tells_its_numbers_in_words():
    picture = comparison([*times(0.8)[:-1], 5.0]).plot()
    assert picture.png.startswith(b"\x89PNG")
    assert "one device: 100 ms (100–120 ms, 98 %)" in picture.alt
    assert "two replicas: 84.0 ms" in picture.alt
    assert "cannot tell, 1.25×" in picture.alt
    assert "two replicas is faster" in comparison(times(0.8)).plot().alt
    assert picture.kind == comparison(ONE).kind


def test_a_run_shows_itself():
    run = Run(log_of(epoch=ONE), 64.0, "images", "", 0.98)
    assert run._repr_mimebundle_()["text/plain"] == str(run)
    assert "640" in str(run)
    assert run.plot().alt.startswith("Timings, epoch: 8 calls")
    assert repr(run) == "Run(epoch, 8 rounds)"


def test_a_call_too_short_to_time_is_named():
    run = Run(log_of(tiny=[1e-6] * 8), None, "images", "", 0.98)
    assert "Put a loop into it" in str(run)


def test_a_busy_machine_is_named():
    log = log_of(a=ONE)
    busy = replace(log, machine=replace(log.machine, load=3.0))
    assert "busy at the start (load 3.0 on 2 cores)" in str(Run(busy, None, "images", "", 0.98))


def test_samples_of_an_incomplete_round_are_kept_but_not_paired():
    log = log_of(a=[*ONE, 77.0], b=ONE)
    result = comparison(ONE, log=log, baseline="a", items=None, devices=None, scaling=None)
    assert result.rounds == 8
    assert result.log.of("a").samples[-1] == 77.0
    assert math.isclose(result.speedup().value, 1.0)


def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(LabError, match="no plain file"):
            comparison(ONE).save(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_classes_of_one_name_in_two_rooms_keep_apart():
    from labkit.collectives import programs, run
    from labkit.timing import Verdict

    proved = run(programs.ring_all_reduce, ranks=2).check("all_reduce")
    judged = comparison(ONE).verdict()
    assert type(judged) is Verdict
    assert plain.load(plain.dump(proved)) == proved
    assert plain.load(plain.dump(judged)) == judged
