"""A span is told at both edges to all who listen: from threads, callbacks, other programs."""

import json
import os
import subprocess
import sys
import threading
import timeit
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.telemetry import spans
from labkit.telemetry.lines import Header, header_line
from labkit.telemetry.spans import end_marks, forget, keras_callback, listen, listening, mark

ROOT = Path(__file__).parents[2]


@pytest.fixture
def heard():
    told = []
    with listening(told.append):
        yield told


def names(told):
    return [(span.name, "begins" if span.end is None else "ends") for span in told]


def test_both_edges_are_told(heard):
    with mark("epoch 1", images=60_000, by="training"):
        assert names(heard) == [("epoch 1", "begins")]
    first, last = heard
    assert (last.name, last.images, last.by, last.start) == (
        "epoch 1",
        60_000,
        "training",
        first.start,
    )
    assert last.end >= last.start


def test_spans_lie_in_one_another_and_overlap(heard):
    outer = mark("outer")
    with mark("inner"):
        outer.end()
    told = [("outer", "begins"), ("inner", "begins"), ("outer", "ends"), ("inner", "ends")]
    assert names(heard) == told


def test_an_exception_ends_a_span_and_goes_on(heard):
    with pytest.raises(ZeroDivisionError), mark("doomed"):
        _ = 1 / 0
    assert names(heard) == [("doomed", "begins"), ("doomed", "ends")]


def test_a_mark_ends_once(heard):
    with mark("one") as one:
        one.end()
    one.end()
    assert names(heard) == [("one", "begins"), ("one", "ends")]


def test_images_may_be_known_only_at_the_end(heard):
    mark("batch").end(images=128)
    assert heard[-1].images == 128


def test_threads_mark_at_the_same_time(heard):
    def work(number):
        for _ in range(50):
            with mark(f"thread {number}"):
                pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(heard) == 400
    assert sum(span.end is not None for span in heard) == 200


def test_who_was_forgotten_hears_nothing_more(heard, capsys):
    listen(print)
    forget(print)
    forget(print)
    mark("one").end()
    assert len(heard) == 2
    assert capsys.readouterr().out == ""


def test_a_listener_that_fails_is_named_and_the_program_goes_on(heard):
    told = []

    def broken(span):
        if span.name == "one":
            raise RuntimeError("no room")
        told.append(span.name)

    with listening(broken):
        with pytest.warns(RuntimeWarning, match="no room"):
            mark("one").end()
        mark("two").end()
    assert names(heard)[-1] == ("two", "ends")
    assert told == ["two", "two"]  # one odd span does not make it deaf


@pytest.mark.parametrize("images", [0, -1, True, float("nan"), float("inf"), "many", [6]])
def test_an_odd_number_of_images_is_refused_and_leaves_no_span_open(heard, images):
    with pytest.raises(LabError, match="number of images"):
        mark("one", images)
    begun = mark("two")
    with pytest.raises(LabError, match="number of images"):
        begun.end(images)
    assert [(span.name, span.images, span.end is None) for span in heard] == [
        ("two", None, True),
        ("two", None, False),
    ]
    with pytest.raises(LabError, match="number of images"):
        keras_callback(images)


def test_numbers_of_numpy_are_numbers(heard):
    mark("one", np.int64(6)).end()
    mark("two").end(np.float32(2.5))
    assert [(span.name, span.images) for span in heard if span.end] == [("one", 6), ("two", 2.5)]
    assert type(heard[0].images) is int


def test_a_span_that_an_exception_leaves_has_ended_without_its_images(heard):
    with pytest.raises(KeyboardInterrupt), mark("epoch 1", 60_000):
        raise KeyboardInterrupt
    assert heard[-1].end is not None
    assert heard[-1].images is None


def test_spans_that_follow_at_once_or_begin_together_stay_apart(heard):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: mark("same").end(), range(400)))
    starts = {round(span.start, 6) for span in heard}
    assert len(starts) == 400
    assert all(span.end >= span.start for span in heard if span.end)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("epoch\n1", "epoch 1"),
        ("\x1b[31mred", "[31mred"),
        ("lone \ud800 half", "lone half"),
        ("Größe 语 🙂", "Größe 语 🙂"),
        ("", "unnamed"),
        ("x" * 1000, "x" * 200),
    ],
)
def test_a_name_can_be_written_anywhere(heard, name, written):
    mark(name).end()
    assert heard[0].name == written


def test_where_nobody_listens_a_mark_is_next_to_nothing():
    assert mark("one") is mark("two")
    # Allocations and not microseconds: a busy machine must not decide.
    assert timeit.timeit(lambda: mark("one").end(), number=10_000) < 1


def test_what_an_interruption_left_open_can_be_ended_from_outside(heard):
    mark("epoch 3", by="keras")
    mine = mark("mine")
    end_marks("keras")
    assert names(heard)[-1] == ("epoch 3", "ends")
    mine.end()


def test_a_forked_child_tells_its_parents_panels_nothing(heard):
    child = os.fork()
    if child == 0:
        mark("in the child").end()
        os._exit(1 if heard else 0)
    assert os.waitpid(child, 0)[1] == 0


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, **environment},
    )  # fmt: skip


MARKING = "from labkit.telemetry.spans import mark\nwith mark('epoch 1', 10, 'training'): pass"


def test_another_program_adds_its_spans_to_a_recording(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text(header_line(Header("here", "now", 0.1, 0.0)) + "\n")
    answer = run(MARKING, **{spans.SPANS_TO: str(file)})
    assert (answer.returncode, answer.stderr) == (0, "")
    begun, ended = map(json.loads, file.read_text().splitlines()[1:])
    assert (begun["span"], begun["end"]) == ("epoch 1", None)  # a crash would leave that
    assert (ended["span"], ended["images"], ended["by"]) == ("epoch 1", 10, "training")
    assert 0 < ended["start"] <= ended["end"]
    assert ended["start"] == begun["start"]


def test_a_recording_that_is_gone_ends_no_program(tmp_path):
    answer = run(MARKING, **{spans.SPANS_TO: str(tmp_path / "gone.jsonl")})
    assert answer.returncode == 0
    assert "gone.jsonl" in answer.stderr


def test_marking_needs_nothing_heavy():
    program = "import sys; import labkit.telemetry.spans; print(*sys.modules)"
    loaded = {name.split(".")[0] for name in run(program).stdout.split()}
    assert loaded & {"numpy", "keras", "tensorflow", "psutil", "pynvml", "IPython"} == set()
