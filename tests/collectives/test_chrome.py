"""The Chrome trace of a run: lanes that do not overlap, arrows that end where they must, kinds."""

import itertools
import json

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import programs
from labkit.kinds import LabError

LINKS = {"latency": 5e-6, "bandwidth": 1e9, "reduction": 2e-10}


@pytest.fixture(scope="module")
def tree():
    inputs = [np.full(1000, float(rank)) for rank in range(6)]
    return collectives.run(programs.tree_all_reduce, inputs)


@pytest.fixture(scope="module")
def content(tree, tmp_path_factory):
    path = tmp_path_factory.mktemp("chrome") / "run.json"
    return json.loads(tree.to_chrome(path, **LINKS).read_text("utf-8"))


def of(content, phase):
    return [event for event in content["traceEvents"] if event["ph"] == phase]


def test_an_arrow_leads_from_the_bar_of_its_sender_into_the_bar_of_its_receiver(tree, content):
    ends = of(content, "s") + of(content, "f")
    assert len(ends) == 2 * len(tree.messages)
    for end in ends:
        (around,) = (
            bar for bar in of(content, "X")
            if bar["tid"] == end["tid"] and bar["ts"] < end["ts"] < bar["ts"] + bar["dur"]
        )  # fmt: skip
        message = tree.messages[end["id"]]
        sends = end["ph"] == "s"
        assert around["name"] == (f"to {message.dest}" if sends else f"from {message.source}")
        assert end["pid"] == (message.source if sends else message.dest) + 1


def test_bars_of_one_lane_follow_each_other_and_belong_to_one_rank(tree, content):
    lanes, owners = {}, {}
    for bar in of(content, "X"):
        lanes.setdefault(bar["tid"], []).append((bar["ts"], bar["ts"] + bar["dur"]))
        owners.setdefault(bar["tid"], set()).add(bar["pid"])
    for bars in lanes.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(sorted(bars)))
    assert all(len(owner) == 1 for owner in owners.values())
    names = {e["pid"]: e["args"]["name"] for e in of(content, "M") if e["name"] == "process_name"}
    assert names == {rank + 1: f"rank {rank}" for rank in range(tree.ranks)}


def test_times_are_those_of_the_model_in_microseconds_and_say_so(tree, content):
    timed = tree.timed(**LINKS)
    assert max(bar["ts"] + bar["dur"] for bar in of(content, "X")) == pytest.approx(
        1e6 * timed.seconds
    )
    assert content["otherData"]["times"] == str(timed.kind)
    assert len([bar for bar in of(content, "X") if bar["name"] == "reduce"]) == len(timed.work)


def test_without_links_a_step_is_a_microsecond_and_a_bar_says_its_call(tree, tmp_path):
    content = json.loads(tree.to_chrome(tmp_path / "run.json").read_text("utf-8"))
    assert max(bar["ts"] + bar["dur"] for bar in of(content, "X")) == tree.steps
    assert "no links were given" in content["otherData"]["times"]
    bar = next(bar for bar in of(content, "X") if bar["name"].startswith("to "))
    assert bar["args"]["bytes"] == 8000
    assert bar["args"]["call"] == "Send"


def test_a_folder_that_is_not_there_is_named(tree, tmp_path):
    with pytest.raises(LabError, match=r"nowhere.*folder that exists"):
        tree.to_chrome(tmp_path / "nowhere" / "run.json")
