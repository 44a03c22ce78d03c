"""A run as an animation: what a notebook, a file and a printed page get of it."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from labkit import LabError, collectives
from labkit.collectives import topologies


@pytest.fixture(scope="module")
def player():
    return collectives.run(collectives.programs.ring_all_reduce, ranks=4).player()


def test_it_says_in_words_what_there_is_to_see(player):
    assert repr(player) == (
        "Animation of ring_all_reduce on 4 ranks: 24 messages in 6 steps, 192 B. "
        "After the last step 16 of 16 pieces hold every rank's contribution once. "
        "30.0 µs, modelled: α = 5.00 µs, 10.0 GB/s between any two ranks."
    )


def test_a_notebook_gets_the_animation_and_the_picture_is_inside(player, monkeypatch):
    monkeypatch.delenv("LABKIT_PICTURES", raising=False)
    data, _ = player._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html"}
    assert base64.b64encode(player.still.png).decode() in data["text/html"]
    assert "ring_all_reduce on 4 ranks" in data["text/html"].split("<script>")[0]


def test_a_published_notebook_gets_the_picture_alone(player, monkeypatch):
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    data, metadata = player._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}
    assert metadata["image/png"]["alt"] == player.alt


def test_the_links_are_those_that_one_asks_for():
    trace = collectives.run(collectives.programs.broadcast, ranks=4)
    assert trace.player(latency=1.0).timed.seconds == pytest.approx(2.0)
    slow = topologies.ring(4, latency=3.0, bandwidth=1e9)
    assert trace.player(topology=slow).timed.seconds > 3.0
    assert "ring" in repr(trace.player(topology=slow))


def test_it_is_saved_as_a_page_of_its_own(player, tmp_path):
    file = player.save(tmp_path / "ring.html")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert player.html() in text
    with pytest.raises(LabError, match=r"cannot be written to .*ends in \.html"):
        player.save(tmp_path / "nowhere" / "ring.html")


def test_neither_matplotlib_nor_ipython_is_loaded_for_it():
    program = (
        "import sys; from labkit import collectives\n"
        "collectives.run(collectives.programs.broadcast, ranks=2).player()._repr_mimebundle_()\n"
        "print(sorted({'matplotlib', 'IPython', 'tensorflow'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert answer.stdout.strip() == "[]", answer.stderr
