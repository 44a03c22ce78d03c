"""A span is announced at both edges to every listener: by threads, cells, other programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.kinds import LabError
from labkit.telemetry.format import Header, line
from labkit.telemetry.spans import SPANS_TO, listening, span

ROOT = Path(__file__).parents[2]


@pytest.fixture
def heard():
    told = []
    with listening(told.append):
        yield told


def names(told):
    return [(one.name, "begins" if one.end is None else "ends") for one in told]


def test_both_edges_are_announced_once(heard):
    with span("epoch 1", images=60_000) as one:
        assert names(heard) == [("epoch 1", "begins")]
        one.end()
    first, last = heard
    assert (last.name, last.images) == ("epoch 1", 60_000)
    assert first.start == last.start <= last.end
    with span("counted") as counted:
        counted.end(images=128, loss=0.0)
    with span("diverged") as diverged:
        diverged.end(loss=float("nan"))
    with pytest.raises(ZeroDivisionError), span("broken", 60_000):
        _ = 1 / 0
    expected = ("counted", "diverged", "broken")
    assert names(heard)[2:] == [(name, edge) for name in expected for edge in ("begins", "ends")]
    assert [(one.images, one.loss) for one in heard[3::2]] == [
        (128, 0.0),
        (None, None),
        (None, None),
    ]


def test_a_listener_that_fails_is_said_once_and_does_not_reach_the_program(heard, capsys):
    def fails(_):
        raise OSError("the page is gone")

    with listening(fails), listening(heard.append), span("epoch 1"):
        pass
    assert len(heard) == 4
    assert capsys.readouterr().err.count("the page is gone") == 1


@pytest.mark.parametrize("images", [0, "many"])
def test_images_must_be_a_number_above_zero(heard, images):
    with pytest.raises(LabError, match="images"):
        span("one", images)
    with pytest.raises(LabError, match="images"), span("two") as two:
        two.end(images)
    assert [(one.name, one.images) for one in heard] == [("two", None), ("two", None)]


# Other programs


def test_another_program_adds_its_spans_to_a_recording_and_loads_nothing_heavy(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text(line(Header("here", "now", 0.1, 0.0)) + "\n")
    program = (
        "import sys\nfrom labkit.telemetry.spans import span\n"
        "with span('epoch 1', 10): pass\nprint(*sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, SPANS_TO: str(file)},
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, "")
    loaded = {name.split(".")[0] for name in answer.stdout.split()}
    assert loaded & {"numpy", "keras", "tensorflow", "psutil", "pynvml", "IPython"} == set()
    begun, ended = map(json.loads, file.read_text().splitlines()[1:])
    assert (begun["span"], begun["end"]) == ("epoch 1", None)  # a crash would leave that
    assert (ended["span"], ended["images"]) == ("epoch 1", 10)
    assert 0 < begun["start"] == ended["start"] <= ended["end"]
