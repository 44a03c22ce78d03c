"""Studies are measured: in ranks of both frameworks, resumed, interrupted, without names."""

from __future__ import annotations

import getpass
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import labkit
from labkit.cluster.links.namespaces import private_network_refused
from labkit.study import load
from labkit.study.study_run import make_plan, run
from labkit.time_limit import slowdown
from tests.exercises.cells import NEEDS_TORCH

TWO = pytest.mark.skipif(
    labkit.hardware().cores.usable < 2, reason="two devices of one core would share its time"
)


def study_of(file, *parts, devices="1,2", seconds=12.0, **how):
    """Measure these parts alone; what a busy machine left no time for is measured again."""
    plan = make_plan(devices, seconds * min(5.0, slowdown()), **how)
    plan["parts"] = [
        part for part in plan["parts"]
        if (part["part"], part["devices"]) in parts
        and part["key"] in ("float32", "memory", "dense")
    ]  # fmt: skip
    run(plan, file, time.time())
    for longer in (3, 9):
        if all(part.outcome != "cut off" and enough(load(file), part) for part in load(file).parts):
            break
        file.unlink()
        run({**plan, "seconds": longer * plan["seconds"]}, file, time.time())
    return load(file)


def enough(study, part):
    """Whether steps of several devices were timed beside one device."""
    needed = {"alone", "strong"} if (part.part, part.devices) == ("step", 2) else set()
    return needed <= set(study.contenders(part))


@pytest.fixture(scope="module", autouse=True)
def _ranks_end():
    yield
    labkit.cluster.shutdown()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    file = tmp_path_factory.mktemp("study") / "two.jsonl"
    parts = ("gemm", 1), ("copy", 1), ("loss", 1), ("step", 1), ("all-reduce", 2), ("step", 2)
    study_of(file, *parts)
    return file


@TWO
def test_two_logical_devices_are_measured_under_tensorflow(measured):
    study = load(measured)
    done = {(part.part, part.framework, part.devices) for part in study.done("step")}
    assert ("step", "tensorflow", 2) in done
    (step,) = study.done("step", 2)
    assert {"alone", "strong"} <= set(study.contenders(step))
    assert study.done("gemm")
    assert study.done("all-reduce")
    assert study.software[0]["tensorflow"]
    assert labkit.replay(measured).devices, "the sampler's rows are in the same file"
    assert all(part.stop <= load(measured).recording.seconds + 1 for part in study.parts)


@TWO
def test_it_names_neither_host_nor_user_nor_folder(measured, tmp_path):
    page = load(measured).save(tmp_path / "page.html").read_text()
    page = re.sub(r"base64,[\w+/=]+", "", page)
    for text in (measured.read_text(), page):
        for name in (
            socket.gethostname(),
            getpass.getuser(),
            str(measured.parent),
            str(Path.cwd()),
        ):
            assert f'"{name}"' not in text
            assert f"{name}/" not in text
        assert '"processes"' not in text


@TWO
def test_resumed_it_keeps_what_is_done_and_measures_the_rest(measured, tmp_path):
    lines = measured.read_text().splitlines(keepends=True)
    half = [
        text
        for text in lines
        if '"part":"all-reduce","key":"float32","framework":"tensor' not in text
    ]
    file = tmp_path / "half.jsonl"
    file.write_text("".join(half))
    before = load(file)
    for longer in (2, 6, 18):
        plan = {**before.plan, "seconds": longer * before.plan["seconds"]}
        run(plan, file, time.time(), resume=True)
        after = load(file)
        if len(after.done("all-reduce")) == len(load(measured).done("all-reduce")):
            break
    assert {part.name for part in after.done("all-reduce")} == {
        part.name for part in load(measured).done("all-reduce")
    }
    done = {part.name for part in before.parts if part.outcome == "done"}
    kept = [one for one in before.samples if one.name in done]
    assert kept
    assert [one for one in after.samples if one.name in done] == kept
    assert labkit.replay(file).damage is None


@NEEDS_TORCH
@TWO
def test_two_ranks_are_measured_under_torch(tmp_path):
    file = tmp_path / "torch.jsonl"
    study = study_of(file, ("step", 2), ("all-reduce", 2), framework="torch", seconds=24)
    (step,) = study.done("step", 2)
    assert {"alone", "strong"} <= set(study.contenders(step))
    assert "gloo" in step.on or labkit.hardware().gpus


@TWO
@pytest.mark.skipif(bool(private_network_refused()), reason="no network of one's own here")
def test_two_hosts_over_links_share_the_rate_of_the_link(tmp_path):
    file = tmp_path / "links.jsonl"
    study = study_of(file, ("all-reduce", 2), devices="2", link="200 Mbit/s", seconds=16)
    (part,) = study.done("all-reduce", 2)
    assert study.busbw(part, str(16 << 20)).low < 30e6, "200 Mbit/s are 25 MB/s"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_keeps_parts_and_leaves_nothing_running(tmp_path, number):
    file = tmp_path / "cut.jsonl"
    command = [sys.executable, "-m", "labkit.cli", "study", "--devices", "1", "--for", "60"]
    process = subprocess.Popen([*command, "--out", str(file)], stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while (
            process.poll() is None
            and time.monotonic() < until
            and '"part":"gemm"' not in (file.read_text() if file.exists() else "")
        ):
            time.sleep(0.1)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"--resume {file}" in said
    _, alive = psutil.wait_procs(children, timeout=20)
    assert children
    assert alive == []
    assert [part.part for part in load(file).done("gemm")] == ["gemm"]
    json.loads(file.read_text().splitlines()[-1])


@pytest.mark.stress
@pytest.mark.parametrize("link", [None, "200 Mbit/s"])
def test_a_study_of_a_minute_ends_within_a_fifth_of_its_time_and_agrees_with_a_second(
    tmp_path, link
):
    studies = []
    for name in ("first.jsonl", "second.jsonl"):
        command = [sys.executable, "-m", "labkit.cli", "study", "--out", str(tmp_path / name)]
        began = time.monotonic()
        subprocess.run([*command, *(["--link", link] if link else [])], check=True, timeout=300)
        assert 48 <= time.monotonic() - began <= 72
        studies.append(load(tmp_path / name))
    words = [row[-1] for row in studies[0].beside(studies[1]).rows]
    sure = [word for word in words if word != "cannot tell"]
    assert sure.count("agree") >= 0.8 * len(sure)
