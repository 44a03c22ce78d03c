"""A recording of a study is read whole, checked, and turned into numbers; a changed one is not."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path

import pytest

import labkit
from labkit.kinds import LabError
from labkit.study import here, load
from labkit.study.measuring import SIZES
from labkit.study.study_run import anonymous, make_plan

FAST, SLOW = 1.6, 0.7  # how many times the throughput of one device


def lines_of(seed=0, noise=0.02):
    """The lines of a study of two devices: strong scaling gains 1.6 times, weak loses 0.7."""
    draw = random.Random(seed)
    header = {
        "labkit": "recording", "format": 1, "where": "a machine of two cores", "every": 0.2,
        "when": "2026-11-29T06:00:00+00:00", "clock": 10.0, "title": "A study", "study": 1,
        "wall": 1.7e9, "plan": {"seconds": 60.0, "parts": []},
    }  # fmt: skip
    found = [header, {"machine": {"cpu": "CPU", "cores": 2, "gpus": []}}]
    found.append({"software": {"python": "3.11", "tensorflow": "2.21"}})
    at = 1.0

    def part(what, key, devices, contenders):
        nonlocal at
        began = at
        named = {"key": key, "framework": "tensorflow", "devices": devices}
        for number in range(12):
            for name, (wall, work) in contenders.items():
                took = round(wall * math.exp(draw.gauss(0, noise)), 7)
                sample = {"sample": what, **named, "contender": name, "round": number, "start": at}
                found.append({**sample, "wall": took, "cpu": 0.9 * took, "work": work, "count": 1})
                at += took
        found.append({
            "part": what, **named, "outcome": "done", "says": "", "on": "2 logical CPUs",
            "start": began, "stop": at, "threads": 2, "others": 0.01,
        })  # fmt: skip

    part("gemm", "float32", 1, {"float32/1024": (0.02, 2e9)})
    part("copy", "memory", 1, {"64 MB": (0.005, 128e6)})
    part("loss", "dense", 1, {"32": (0.3, 32.0), "128": (0.2, 128.0)})
    part("all-reduce", "float32", 2, {str(n): (1e-4 + n / 1e9, n) for n in SIZES})
    step = {"alone": (0.02, 128), "strong": (0.02 / FAST, 128), "weak": (0.04 / SLOW, 256)}
    step |= {"no reduction": (0.01, 128), "same images": (0.01, 128)}
    part("step", "dense", 2, step)
    skipped = {"part": "step", "key": "dense", "framework": "tensorflow", "devices": 4}
    found.append({**skipped, "outcome": "skipped", "says": "4 devices and 2 cores"})
    found.append({"end": at})
    return found


def saved(folder, lines, name="study.jsonl"):
    file = folder / name
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return file


@pytest.fixture
def study(tmp_path):
    return load(saved(tmp_path, lines_of()))


def test_numbers_come_back_with_their_intervals(study):
    (step,) = study.done("step")
    strong, weak = (study.verdict(step, name) for name in ("strong", "weak"))
    assert (strong.word, weak.word) == ("faster", "slower")
    assert strong.estimate.low < FAST < strong.estimate.high
    assert weak.estimate.low < SLOW < weak.estimate.high
    parts = study.breakdown(step)
    assert parts["gradient reduction"].value == pytest.approx(0.0025, rel=0.2)
    assert not parts["input"].low > 0, "equal times differ by nothing that can be measured"
    (reduced,) = study.done("all-reduce")
    assert study.busbw(reduced, str(1 << 20)).value == pytest.approx(
        (1 << 20) / (1e-4 + (1 << 20) / 1e9), rel=0.1
    ), "2(n-1)/n is 1 for two devices"
    (gemm,) = study.done("gemm")
    assert study.rate(gemm, "float32/1024").value == pytest.approx(2e9 / 0.018, rel=0.1)
    assert study.joules(step, "strong") is None


def test_a_second_study_of_the_same_machine_agrees_and_another_machine_does_not(study, tmp_path):
    again = load(saved(tmp_path, lines_of(seed=1), "again.jsonl"))
    assert all(row[-1] == "agree" for row in study.beside(study).rows)
    agreed = [row[-1] == "agree" for row in study.beside(again).rows]
    assert sum(agreed) >= len(agreed) - 1
    lines = lines_of()
    for one in lines:
        if one.get("contender") == "strong":
            one["wall"], one["cpu"] = one["wall"] / 1.4, one["cpu"] / 1.4
    other = load(saved(tmp_path, lines, "other.jsonl"))
    rows = {row[0]: row[-1] for row in study.beside(other).rows}
    assert rows["speed-up, dense, tensorflow, 2 × strong"] == "1.40×"
    assert rows["speed-up, dense, tensorflow, 2 × weak"] == "agree"


def test_the_page_needs_no_network_and_every_picture_says_its_kind(study, tmp_path):
    page = study.save(tmp_path / "page.html").read_text()
    assert set(re.findall(r'(?:src|href)="(\w+):', page)) == {"data"}
    assert not re.search(r"https?://|@import|url\(", page)
    assert str(study.kind) in page
    assert page.count("<img ") == 4
    assert "4 devices and 2 cores" in page


def test_it_is_a_recording_that_labkit_replays(tmp_path):
    file = saved(tmp_path, lines_of())
    assert labkit.replay(file).damage is None


@pytest.mark.parametrize("noise", ["others", "few"])
def test_it_says_when_it_cannot_tell(tmp_path, noise):
    lines = lines_of()
    for one in lines:
        if noise == "others" and one.get("part") == "step" and one["outcome"] == "done":
            one["others"] = 0.4
    if noise == "few":
        lines = [one for one in lines if one.get("round", 0) < 3]
    study = load(saved(tmp_path, lines))
    assert "cannot tell" in repr(study)
    words = {row[0]: row[-1] for row in study.beside(study).rows}
    assert words["speed-up, dense, tensorflow, 2 × strong"] == "cannot tell"


def change(field, to, *, where=lambda one: one.get("sample") == "step"):
    def changed(lines):
        one = next(one for one in lines if where(one))
        one[field] = to(one[field]) if callable(to) else to
        return lines

    return changed


def without(which):
    return lambda lines: [one for one in lines if not which(one)]


MANIPULATED = {
    "more CPU time than cores have": change("cpu", 1.0),
    "faster than a product of matrices": change("wall", lambda wall: wall / 1e5),
    "much more work": change("work", lambda work: 1e6 * work),
    "outside its part": change("start", 500.0),
    "longer than its part": change("wall", 100.0),
    "no time": change("wall", 0.0),
    "negative work": change("work", -1.0),
    "a text": change("wall", "0.1"),
    "infinite": change("wall", math.inf),
    "a round is missing": without(lambda one: one.get("round") == 3 and one["contender"] == "weak"),
    "no sample at all": without(lambda one: one.get("sample") == "step"),
    "another sort of part": change("part", "magic", where=lambda one: "part" in one),
    "no header": lambda lines: lines[1:],
    "no study": change("study", 2, where=lambda one: "study" in one),
    "ends before it begins": change("stop", 0.5, where=lambda one: one.get("part") == "step"),
}


@pytest.mark.parametrize("how", MANIPULATED)
def test_a_manipulated_recording_gets_a_sentence(tmp_path, how):
    file = saved(tmp_path, MANIPULATED[how](lines_of()))
    with pytest.raises(LabError, match=re.escape(str(file))):
        load(file)


@pytest.mark.parametrize("content", [b"", b"\x00\xff\n", b"[]\n", b'{"labkit":"recording"}\n'])
def test_another_file_gets_a_sentence(tmp_path, content):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(LabError):
        load(file)


def test_a_last_line_that_is_cut_off_costs_only_itself(tmp_path):
    file = saved(tmp_path, lines_of())
    whole = load(file)
    file.write_text(file.read_text() + '{"sample":"step","ke')
    assert load(file).samples == whole.samples


def test_what_is_kept_for_resume_has_no_half_parts(tmp_path):
    lines = [one for one in lines_of() if one.get("part") != "step"]
    kept = load(saved(tmp_path, lines)).kept_lines()
    samples = [json.loads(text).get("sample") for text in kept]
    assert "gemm" in samples
    assert "step" not in samples


def test_the_study_of_the_class_is_the_named_one_or_the_one_that_lies_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABKIT_STUDY", raising=False)
    assert here() is None
    saved(tmp_path, lines_of())
    assert here() is not None
    monkeypatch.setenv("LABKIT_STUDY", str(tmp_path / "none.jsonl"))
    with pytest.raises(LabError):
        here()


def test_more_devices_than_cores_are_skipped_unless_they_are_nodes():
    cores = labkit.hardware().cores.usable
    if labkit.hardware().gpus:
        pytest.skip("devices are GPUs here")
    plan = make_plan(f"1,{2 * cores}", 60)
    skipped = {part["devices"] for part in plan["parts"] if part["says"]}
    assert skipped == {2 * cores}
    assert not any(part["says"] for part in make_plan(f"1,{2 * cores}", 60, nodes=2)["parts"])
    with pytest.raises(LabError):
        make_plan("1;2", 60)


def test_messages_lose_paths_and_names():
    import os

    text = f"OSError in /srv/ann/x.py on {os.uname().nodename}: ~/secret\nTraceback /srv/y"
    assert not re.search(rf"ann|secret|srv|{re.escape(os.uname().nodename)}", anonymous(text))


def test_the_studies_that_people_contributed_can_be_read_and_hold_no_path():
    files = sorted((Path(__file__).parents[2] / "docs" / "studies").glob("*.jsonl"))
    assert files
    for file in files:
        assert load(file).samples
        assert not re.search(r"/(home|root|Users)/", file.read_text())
