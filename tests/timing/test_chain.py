"""Predictions keep their time, and one that changes after the measurement is found."""

import json
import threading

import pytest

from labkit.kinds import LabError
from labkit.timing import chain, predict

WHAT = "speed-up of the parallel program"


@pytest.fixture(autouse=True)
def in_a_notebook(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "FILE", tmp_path / "labkit-predictions.json")
    monkeypatch.setattr("IPython.get_ipython", object)


def test_a_guess_that_was_there_before_the_measurement_is_a_prediction():
    predict(WHAT, 1.2)
    mine = predict(WHAT, 1.4)  # changed in time
    assert mine.at < mine.freeze()
    assert mine.fault() == ""


def test_a_cell_that_runs_again_keeps_its_time():
    assert predict(WHAT, 1.2).at == predict(WHAT, 1.2).at


def test_a_guess_changed_after_the_measurement_is_refused():
    predict(WHAT, 1.8).freeze()
    late = predict(WHAT, 0.84)
    late.freeze()
    assert "began with the guess 1.8" in late.fault()


def test_two_processes_at_once_lose_no_prediction():
    def note(kernel):
        for number in range(20):
            predict(f"{kernel} {number}", 1.0)

    kernels = [threading.Thread(target=note, args=(kernel,)) for kernel in "ab"]
    for one in kernels:
        one.start()
    for one in kernels:
        one.join()
    assert len(chain.entries()) == 40


def test_a_guess_without_a_measurement_after_it_is_no_prediction():
    assert "not frozen" in predict(WHAT, 1.8).fault()


def test_the_page_sends_a_guess_and_a_kernel_that_starts_again_knows_it(monkeypatch):
    monkeypatch.setattr("labkit.views.live.in_kernel", lambda: True)
    monkeypatch.setattr("labkit.views.live.publish", lambda *_, **__: None)
    monkeypatch.setattr("labkit.views.live.listen", lambda hear: heard.append(hear) or "me")
    heard = []
    mine = predict(WHAT, unit="×")
    assert mine.guess is None
    for number in (-1, "many", None, 1.4):  # what a page may send
        heard[0]({"what": WHAT, "guess": number})
    heard[0]({"what": "never asked", "guess": 5})
    assert (mine.guess, [one["guess"] for one in chain.entries()]) == (1.4, [1.4])
    assert predict(WHAT, unit="×").guess == 1.4


def test_what_was_not_guessed_is_not_kept():
    predict(WHAT).freeze()
    assert not chain.FILE.exists()


@pytest.mark.parametrize("change", [
    lambda entries: entries[0].update(guess=0.84),
    lambda entries: entries.pop(0),
])  # fmt: skip
def test_an_entry_changed_by_hand_breaks_the_chain(change):
    mine = predict(WHAT, 1.8)
    mine.freeze()
    entries = json.loads(chain.FILE.read_text())
    change(entries)
    chain.FILE.write_text(json.dumps(entries))
    with pytest.raises(LabError, match="changed by another program"):
        mine.fault()


def test_the_report_of_the_capstone_refuses_a_guess_that_was_changed():
    from labkit.exercises import tasks

    space = {}
    exec(tasks()["64.report"].solution, space)
    report = space["report"] | {"measured": (0.84, 0.8, 0.88), "inside": False}
    mine = predict(WHAT, 1.8)
    mine.freeze()
    check = tasks()["64.report"].check
    assert check(report | {"predicted": mine})
    late = check(report | {"predicted": predict(WHAT, 0.84), "inside": True})
    assert not late
    assert "began with the guess 1.8" in late.text
