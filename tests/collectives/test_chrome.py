"""The Chrome trace of a run: lanes that do not overlap, arrows that end where they must, kinds."""

import itertools
import json

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import programs
from labkit.kinds import LabError

LINKS = {"latency": 5e-6, "bandwidth": 1e9, "reduction": 2e-10}


def written(trace, tmp_path, **links):
    return json.loads(trace.to_chrome(tmp_path / "run.json", **links).read_text("utf-8"))


def of(content, phase):
    return [event for event in content["traceEvents"] if event["ph"] == phase]


@pytest.fixture(scope="module")
def tree():
    inputs = [np.full(1000, float(rank)) for rank in range(6)]
    return collectives.run(programs.tree_all_reduce, inputs)


def test_each_message_is_a_bar_at_both_ends_and_an_arrow_between_them(tree, tmp_path):
    content = written(tree, tmp_path, **LINKS)
    bars = of(content, "X")
    assert len([bar for bar in bars if bar["cat"] == "sends"]) == len(tree.messages)
    assert len([bar for bar in bars if bar["cat"] == "receives"]) == len(tree.messages)
    for message in tree.messages:
        ends = {e["ph"]: e for e in content["traceEvents"]
                if e["ph"] in "sf" and e["id"] == message.number}  # fmt: skip
        assert ends["s"]["pid"] == message.source + 1
        assert ends["f"]["pid"] == message.dest + 1
        assert ends["s"]["ts"] <= ends["f"]["ts"]


def test_an_arrow_begins_and_ends_inside_the_bars_of_its_message(tree, tmp_path):
    content = written(tree, tmp_path, **LINKS)
    for end in of(content, "s") + of(content, "f"):
        around = [
            bar for bar in of(content, "X")
            if bar["tid"] == end["tid"] and bar["ts"] < end["ts"] < bar["ts"] + bar["dur"]
        ]  # fmt: skip
        assert len(around) == 1
        message = tree.messages[end["id"]]
        assert around[0]["name"] == (
            f"to {message.dest}" if end["ph"] == "s" else f"from {message.source}"
        )


def test_bars_of_one_lane_follow_each_other(tree, tmp_path):
    lanes = {}
    for bar in of(written(tree, tmp_path, **LINKS), "X"):
        lanes.setdefault(bar["tid"], []).append((bar["ts"], bar["ts"] + bar["dur"]))
    for bars in lanes.values():
        for before, after in itertools.pairwise(sorted(bars)):
            assert before[1] <= after[0] + 1e-9


def test_lanes_are_named_after_ranks_and_belong_to_one_of_them(tree, tmp_path):
    content = written(tree, tmp_path)
    names = {e["pid"]: e["args"]["name"] for e in of(content, "M") if e["name"] == "process_name"}
    assert names == {rank + 1: f"rank {rank}" for rank in range(tree.ranks)}
    owners = {}
    for event in of(content, "X"):
        owners.setdefault(event["tid"], set()).add(event["pid"])
    assert all(len(owner) == 1 for owner in owners.values())


def test_times_are_those_of_the_model_in_microseconds_and_say_so(tree, tmp_path):
    content = written(tree, tmp_path, **LINKS)
    timed = tree.timed(**LINKS)
    last = max(bar["ts"] + bar["dur"] for bar in of(content, "X"))
    assert last == pytest.approx(1e6 * timed.seconds)
    assert content["otherData"]["times"] == str(timed.kind)
    assert content["otherData"]["times"].startswith("modelled")
    assert [bar for bar in of(content, "X") if bar["cat"] == "works"]


def test_without_links_a_step_is_a_microsecond_and_the_file_says_so(tree, tmp_path):
    content = written(tree, tmp_path)
    assert max(bar["ts"] + bar["dur"] for bar in of(content, "X")) == tree.steps
    assert "no links were given" in content["otherData"]["times"]


def test_a_bar_says_its_bytes_its_elements_and_its_line(tree, tmp_path):
    bar = next(bar for bar in of(written(tree, tmp_path), "X") if bar["cat"] == "sends")
    assert bar["args"]["bytes"] == 8000
    assert bar["args"]["sent from"] == "elements 0 to 1000"
    assert "comm.Send(buffer" in bar["args"]["line"]


def test_a_folder_that_is_not_there_is_named(tree, tmp_path):
    with pytest.raises(LabError, match=r"nowhere.*folder that exists"):
        tree.to_chrome(tmp_path / "nowhere" / "run.json")
