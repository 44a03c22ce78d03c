"""Traces of both frameworks, written here, and files that are damaged, or something else."""

import gzip
import json
import random
import struct
import time

import pytest

import labkit
from labkit.kinds import LabError
from labkit.profiles import reading
from tests.exercises.cells import NEEDS_TORCH

NOW = time.time_ns()


def event(name, start, seconds, tid=1, **more):
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": start * 1e6, "dur": seconds * 1e6,
            "pid": 1, "tid": tid, **more}  # fmt: skip


def chrome(*events, **more):
    return {"schemaVersion": 1, "baseTimeNanoseconds": NOW, "traceEvents": [*events], **more}


STEP = [
    event("ProfilerStep#2", 0, 10),
    event("enumerate(DataLoader)#_Iter.__next__", 0, 2),
    event("aten::mm", 2, 2),
    event("autograd::engine::evaluate_function: MmBackward0", 4, 4),
    event("gloo:all_reduce", 5, 4, tid=2),
]


@pytest.fixture(scope="module")
def tf_trace(tmp_path_factory):
    """Five marked steps of TensorFlow, most of whose time waits for a map in Python."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("tf")

    def slow(i):
        time.sleep(0.02)
        return tf.cast(i, tf.float32)

    batches = iter(
        tf.data.Dataset.range(20).map(
            lambda i: tf.ensure_shape(tf.py_function(slow, [i], tf.float32), ())
        )
    )
    weights = tf.Variable(tf.ones((64, 64)))

    @tf.function
    def step(x):
        return tf.reduce_sum(weights @ weights * x)

    step(next(batches))
    tf.profiler.experimental.start(str(folder))
    for i in range(5):
        with tf.profiler.experimental.Trace("anything", step_num=i, _r=1):
            float(step(next(batches)))
    tf.profiler.experimental.stop()
    return folder


@pytest.fixture
def write(tmp_path):
    def write(content, name="trace.json"):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def test_a_trace_of_tensorflow_shows_its_steps_and_that_they_wait_for_input(tf_trace):
    profile = labkit.profiles.read(tf_trace)
    assert len(profile.steps()) == 5
    assert profile.input_share() > 0.5
    assert profile.intervals("forward")
    for (start, end), parts in zip(profile.steps(), profile.breakdown(), strict=True):
        assert sum(parts.values()) == pytest.approx(end - start)
    assert profile.kind.name == "measured"


def test_the_clock_of_tensorflows_trace_is_the_wall_clock(tf_trace):
    [path] = tf_trace.rglob("*.pb")
    trace = reading.load(path)
    assert abs(trace.spans[0].start / 1e9 - path.stat().st_mtime) < 60


def test_a_trace_of_torch_is_read_with_its_breakdown(write):
    profile = labkit.profiles.read(write(chrome(*STEP), "trace.json.gz"))
    [parts] = profile.breakdown()
    assert [*parts] == ["computing", "communication alone", "input alone", "nothing recorded"]
    assert [*parts.values()] == pytest.approx([6, 1, 2, 1])
    assert profile.exposed() == pytest.approx(0.25)
    assert profile.input_share() == pytest.approx(0.2)
    assert "communication alone" in repr(profile)


@NEEDS_TORCH
def test_two_ranks_of_torch_share_a_clock_and_have_their_own_numbers(tmp_path):
    def traced(rank, folder):
        import time

        import torch
        import torch.distributed as dist
        from torch.profiler import profile, schedule

        dist.init_process_group("gloo")
        x = torch.ones(300, 300)

        def save(one):
            one.export_chrome_trace(f"{folder}/{rank}.json.gz")

        plan = schedule(wait=0, warmup=1, active=3, repeat=1)
        with profile(schedule=plan, on_trace_ready=save, profile_memory=True) as one:
            for i in range(4):
                _ = x @ x
                dist.all_reduce(x)
                if i == 3:
                    time.sleep(0.1)  # gloo's threads write to the profile until their spans end
                one.step()
        dist.destroy_process_group()

    with labkit.cluster(ranks=2, environment="torch") as c:
        c.run(traced, str(tmp_path), timeout=120, show=False)
    profile = labkit.profiles.read([tmp_path / "1.json.gz", tmp_path / "0.json.gz"])
    assert profile.ranks == [0, 1]
    for rank in profile.ranks:
        assert len(profile.steps(rank)) == 3
        assert len(profile.intervals("communication", rank)) == 3
        assert profile.memory[rank]
    ends = [[end for _, end in profile.intervals("communication", rank)] for rank in (0, 1)]
    assert all(abs(a - b) < 5 for a, b in zip(*ends, strict=True))


def test_what_a_gpu_computes_is_told_from_what_the_host_launches(write):
    found = labkit.profiles.read(write(chrome(
        event("aten::mm", 0, 1),
        event("gemm", 1, 5, tid=7, cat="kernel"),
        event("ncclDevKernel_AllReduce", 4, 3, tid=9, cat="kernel"),
        event("Memcpy HtoD", 0, 1, tid=7, cat="gpu_memcpy"),
    )))  # fmt: skip
    kinds = {one.name: one.kind for one in found.spans[0]}
    assert kinds == {"aten::mm": "launch", "gemm": "kernel", "Memcpy HtoD": "copy",
                     "ncclDevKernel_AllReduce": "communication"}  # fmt: skip
    assert found.exposed() == pytest.approx(1 / 3)


def test_ranks_are_those_of_a_mapping_or_of_the_traces(write):
    one = write(chrome(*STEP, distributedInfo={"rank": 1}), "b.json")
    two = write(chrome(*STEP, distributedInfo={"rank": 0}), "a.json")
    assert labkit.profiles.read([one, two]).ranks == [0, 1]
    assert labkit.profiles.read({"with": one, "without": two}).ranks == ["with", "without"]
    assert labkit.profiles.read([one, one]).ranks == [0, 1]


def test_a_profile_is_drawn_with_its_numbers_in_words(write):
    drawn = labkit.profiles.read([write(chrome(*STEP)), write(chrome(*STEP), "b.json")]).picture()
    assert "rank 1: computing 6.00 s, communication alone 1.00 s" in drawn.alt
    with pytest.raises(LabError, match="ends at 10 s"):
        labkit.profiles.read(write(chrome(*STEP))).picture(start=11)


def test_the_memory_of_the_host_is_kept(write):
    instants = [
        {"ph": "i", "name": "[memory]", "ts": at, "tid": 1,
         "args": {"Device Type": kind, "Total Allocated": size}}
        for at, kind, size in ((2e6, 0, 30), (1e6, 0, 10), (3e6, 1, 99))
    ]  # fmt: skip
    profile = labkit.profiles.read(write(chrome(*STEP, *instants)))
    assert profile.memory[0] == [(1.0, 10), (2.0, 30)]


def test_a_large_trace_is_refused_before_it_is_read(tmp_path, monkeypatch):
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(500_000_000)  # of holes: nothing is written, and nothing must be read
    with pytest.raises(LabError, match=r"500 MB.*Trace 10 steps"):
        labkit.profiles.read(large)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b"{" + b" " * (reading.LIMIT + 10)))
    assert bomb.stat().st_size < 200_000
    with pytest.raises(LabError, match=r"unpacked more.*Trace 10 steps"):
        labkit.profiles.read(bomb)
    monkeypatch.setattr(reading, "LIMIT", 100)
    with pytest.raises(LabError, match="too many values"):
        labkit.profiles.read(gzip_of(tmp_path, b"[" + b"[]," * 30))


def gzip_of(folder, data):
    path = folder / "small.json.gz"
    path.write_bytes(gzip.compress(data))
    return path


def varint_bomb():
    """Events of two bytes, each of which would be a span."""
    line = b"\x22\x00" * 1_200_000
    return field(1, field(3, line) + START)


def field(number, data):
    size, length = len(data), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


START = field(5, b"\x08\x01" + field(2, b"\x08\x01" + field(2, b"profile_start_time"))) + field(
    6, b"\x08\x01\x18\x05"
)
DAMAGED = {
    "empty": b"",
    "zeros": bytes(5000),
    "ones": b"\xff" * 5000,
    "a number without end": b"\x0a" + b"\xff" * 100_000,
    "JSON of something else": b'{"cells": []}',
    "a list": b"[1, 2, 3]",
    "a number": b"{}",
    "deep": b"[" * 100_000,
    "names that are numbers": json.dumps(chrome({**STEP[0], "name": 7})).encode(),
    "times that are words": json.dumps(chrome({**STEP[0], "ts": "now"})).encode(),
    "times that are infinite": json.dumps(chrome({**STEP[0], "ts": 1e999})).encode(),
    "times that are NaN": json.dumps(chrome({**STEP[0], "dur": float("nan")})).encode(),
    "a negative duration": json.dumps(chrome({**STEP[0], "dur": -5})).encode(),
    "a span of years": json.dumps(chrome({**STEP[0], "dur": 1e15})).encode(),
    "events that are words": b'{"baseTimeNanoseconds": 1, "traceEvents": ["a"]}',
    "no events": b'{"baseTimeNanoseconds": 1, "traceEvents": []}',
    "without a base": json.dumps({"traceEvents": STEP}).encode(),
    "text": b"What a nice day.\n" * 50,
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "gzip of noise": gzip.compress(random.Random(0).randbytes(3000)),
    "gzip, cut": gzip.compress(json.dumps(chrome(*STEP)).encode())[:-30],
    "gzip's head alone": b"\x1f\x8b\x08",
    "a plane without anything": field(1, b""),
    "two-byte events": varint_bomb(),
    "planes without anything": b"\x0a\x00" * 1_200_000,
    "floats": struct.pack("<100d", *range(100)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_gets_a_sentence(name, write):
    with pytest.raises(LabError, match=r"trace\.bin.*steps"):
        labkit.profiles.read(write(DAMAGED[name], "trace.bin"))


def test_cut_flipped_and_noisy_files_get_a_sentence_or_are_read(tf_trace, write):
    [path] = tf_trace.rglob("*.pb")
    whole = [path.read_bytes(), json.dumps(chrome(*STEP * 20)).encode()]
    draw, refused = random.Random(0), 0
    for number in range(120):
        data = bytearray(whole[number % 2])
        if number % 3 == 0:
            data = data[: draw.randrange(len(data))]
        elif number % 3 == 1:
            for _ in range(20):
                data[draw.randrange(len(data))] = draw.randrange(256)
        else:
            data = bytearray(draw.randbytes(draw.randrange(2000)))
        try:
            profile = labkit.profiles.read(write(bytes(data), "trace.bin"))
            assert repr(profile)  # a flipped letter of a name does no harm
            assert profile.picture().alt
        except LabError:
            refused += 1
    assert refused > 80


@pytest.mark.parametrize("source", [7, None, [], ["no/such/file"], {}, [3.5]])
def test_what_is_no_path_gets_a_sentence(source, tmp_path):
    with pytest.raises(LabError):
        labkit.profiles.read(source)
    with pytest.raises(LabError, match="0 files"):
        labkit.profiles.read(tmp_path)


def test_traces_of_different_days_have_no_common_clock(write):
    old = chrome(*STEP) | {"baseTimeNanoseconds": NOW - 7200 * 10**9}
    with pytest.raises(LabError, match="more than an hour apart"):
        labkit.profiles.read([write(chrome(*STEP)), write(old, "old.json")])
    assert labkit.profiles.read(write(old, "old.json")).kind.name == "recorded"
