"""Comparisons and pictures: they show the record, and say so in words."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from labkit.kinds import LabError, measured
from labkit.updates import Quadratic, Updates, simulate
from labkit.updates.page import pictures
from labkit.views.sketch import Sketch

BOWL = Quadratic((1.0, 0.2))
ODD = {
    "twenty workers": {"workers": 20, "jitter": 0.5, "updates": 100},
    "diverges": {"workers": 8, "learning_rate": 50.0, "updates": 300},
}


def pair(**keywords):
    return [
        simulate(BOWL, mode=mode, slow={3: 4.0}, seconds=60, **keywords)
        for mode in ("sync", "async")
    ]


def test_asynchronous_updates_are_more_and_reach_the_target_first():
    synchronous, asynchronous = pair()
    found = synchronous.beside(asynchronous)
    assert found.names == ("synchronous", "asynchronous")
    assert found.target == synchronous.losses[-1].loss
    assert (synchronous.updates, asynchronous.updates) == (15, 195)
    assert asynchronous.time_to(found.target) < synchronous.time_to(found.target) == 60.0
    assert "15 updates, 60.0 s" in repr(found)
    assert "15 updates, 60.0 s" in found._repr_mimebundle_()["text/html"]
    assert repr(Updates.beside(*pair(), target=1e-9)).count("never") == 2


@pytest.mark.parametrize(
    ("keywords", "names"),
    [
        ([{"workers": 2}, {"workers": 4}], ("asynchronous, 2 workers", "asynchronous, 4 workers")),
        (
            [{"learning_rate": 0.1}, {"learning_rate": 0.05}],
            ("asynchronous, learning rate 0.1", "asynchronous, learning rate 0.05"),
        ),
    ],
)
def test_names_tell_what_is_different(keywords, names):
    assert Updates.beside(*(simulate(BOWL, **each) for each in keywords)).names == names


def test_a_measured_run_beside_a_simulated_one_keeps_both_kinds():
    model, other = pair()
    found = model.beside(replace(other, kind=measured("this machine")))
    assert found.names == ("synchronous, modelled", "asynchronous, measured")


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(LabError, match="no problem"):
        simulate().beside(simulate())


@pytest.fixture
def drawn(monkeypatch):
    """The figures that would become pictures: laid out, but without the pixels."""
    figures = []

    def picture(chart, alt, kind):
        chart.draw_without_rendering()
        figures.append(chart)
        return SimpleNamespace(alt=alt, kind=kind)

    def board(chart, alt):
        figures.append(chart)
        return SimpleNamespace(alt=alt, kind=chart.kind)

    monkeypatch.setattr(pictures, "picture", picture)
    monkeypatch.setattr(Sketch, "picture", board)
    return figures


def words(axes):
    return [text for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("name", ODD)
def test_every_run_can_be_drawn(drawn, name):
    run = simulate(Quadratic(), **ODD[name])
    for shown in (run.picture(), run.histogram(), run.beside(run).picture()):
        assert shown.kind == run.kind


def test_a_timeline_names_versions_read_and_made(drawn):
    run = simulate(workers=2, mode="async", slow={1: 3.0}, updates=12)
    shown = run.picture()
    assert "9 seconds: worker 0 computes 9; worker 1 computes 9." in shown.alt
    found = {word.text for word in drawn[0].words}
    assert {"0→1", "1→2", "0→4", "3→5"} <= found
    assert "in which 3 versions" in simulate(workers=2, mode="sync").picture(until=3.0).alt
    with pytest.raises(LabError, match=r"until .*got 0"):
        run.picture(until=0)


def test_a_histogram_has_every_gradient_in_it_and_its_mean(drawn):
    run = simulate(workers=4, slow={3: 4.0}, updates=101)
    assert "Staleness of 101 gradients" in run.histogram().alt
    axes = drawn[0].axes[0]
    assert sum(bar.get_height() for bar in axes.patches) == 101
    assert f"mean {run.mean_staleness:.2f}" in [text.get_text() for text in words(axes)]


def test_curves_hold_the_losses_over_updates_and_over_seconds(drawn):
    runs = pair()
    shown = Updates.beside(*runs, target=0.1).picture()
    assert "synchronous: loss" in shown.alt
    for run, left, right in zip(runs, *(axes.lines for axes in drawn[0].axes), strict=False):
        assert list(left.get_xdata()) == [one.version for one in run.losses]
        # A logarithmic axis has no place for the loss at 0 s.
        assert list(right.get_xdata()) == [one.seconds for one in run.losses[1:]]
        assert list(right.get_ydata()) == [one.loss for one in run.losses[1:]]
    assert "target\n0.1" in [text.get_text() for text in drawn[0].axes[1].texts]
