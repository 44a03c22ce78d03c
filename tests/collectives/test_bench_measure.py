"""Real collectives on real ranks: right results, faults in words, and nothing left behind."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit import LabError
from labkit.collectives import bench, programs
from labkit.collectives.bench import conversation, entrants
from labkit.collectives.bench.rates import COLLECTIVES
from labkit.collectives.mpi import mpiexec

try:
    mpiexec()
except LabError as fault:
    reason = str(fault)
else:
    reason = ""
with_mpi = pytest.mark.skipif(bool(reason), reason=reason)
OTHERS = [
    pytest.param(name, marks=[] if name == "reduce_scatter" else pytest.mark.stress)
    for name in COLLECTIVES
    if name != "all_reduce"
]
QUICK = {"rounds": 3, "warmup": 1, "seconds_per_size": 0.0, "deadline": 60.0}


def my_ring(comm, buffer):
    programs.ring_all_reduce(comm, buffer)


def forgets_the_last(comm, buffer):
    programs.ring_all_reduce(comm, buffer)
    buffer[-1] = 0


@with_mpi
def test_the_library_the_programs_and_your_own_are_timed_and_checked_together():
    # Not a multiple of anything: chunks are uneven, and 4,002 bytes hold 1,000 numbers.
    names = ("mpi", *programs.ALL_REDUCES)
    found = bench.measure(ranks=3, sizes=[4, 4002], contenders=[*names, my_ring], **QUICK)
    assert found.contenders == (*names, "my_ring")
    assert found.sizes == (4, 4000)
    assert found.correct
    assert found.ranks == 3
    assert all(len(one.seconds) == 3 for one in found.timings)
    assert "mpi4py" in found.libraries["mpi"]
    assert found.kind.name == "measured"


@with_mpi
@pytest.mark.parametrize("collective", OTHERS)
def test_every_collective_of_the_library_leaves_what_ours_leaves(collective):
    asked = [name for name, meaning in programs.MEANING.items() if meaning == collective]
    found = bench.measure(collective, ranks=3, sizes=1000, contenders=["mpi", *asked], **QUICK)
    assert found.correct
    assert found.contenders == ("mpi", *asked)
    assert found.sizes[0] <= 1000


@with_mpi
def test_a_program_that_is_wrong_is_caught():
    found = bench.measure(ranks=2, sizes="1k:2k", contenders=[forgets_the_last], **QUICK)
    assert not found.correct
    assert "WRONG: forgets the last left 2 wrong elements" in found.notes()[0]


@with_mpi
@pytest.mark.stress
def test_a_program_that_waits_for_ever_is_stopped_with_all_its_ranks(tmp_path):
    folder = str(tmp_path)

    def waits(comm, buffer):
        Path(folder, f"{os.getpid()}").touch()
        comm.Recv(buffer, source=(comm.Get_rank() + 1) % comm.Get_size())

    with pytest.raises(LabError, match="waits had not finished after 10 s, and was stopped"):
        bench.measure(ranks=2, sizes=1000, contenders=[waits], **{**QUICK, "deadline": 10.0})
    pids = [int(one.name) for one in tmp_path.iterdir()]
    assert pids, "no rank has begun"
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert psutil.wait_procs(left, timeout=20)[1] == [], "a rank outlived its measurement"


@with_mpi
def test_ranks_end_when_whoever_asked_is_killed(tmp_path):
    program = f"""
import os
from pathlib import Path
from labkit.collectives import bench

def waits(comm, buffer):
    Path({str(tmp_path)!r}, str(os.getpid())).touch()
    comm.Barrier()
    comm.Recv(buffer, source=(comm.Get_rank() + 1) % comm.Get_size())

bench.measure(ranks=2, sizes=1000, contenders=[waits], deadline=120)
"""
    (tmp_path / "asks.py").write_text(program)
    source = str(Path(bench.__file__).parents[3])
    folder = tmp_path / "left"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": source, "TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, tmp_path / "asks.py"], env=environment) as asker:
        until = time.monotonic() + 60
        while not (begun := [one for one in tmp_path.iterdir() if one.name.isdigit()]):
            assert asker.poll() is None, "it ended by itself"
            assert time.monotonic() < until, "no rank has begun"
        ranks = [psutil.Process(int(one.name)) for one in begun]
        asker.kill()
    assert psutil.wait_procs(ranks, timeout=30)[1] == [], "a rank outlived whoever asked"


@with_mpi
def test_a_program_that_raises_names_its_rank_and_its_words():
    def raises(comm, buffer):
        if comm.Get_rank() == 1:
            raise ValueError("no such chunk")
        comm.Barrier()

    with pytest.raises(LabError, match="rank 1 raised ValueError: no such chunk"):
        bench.measure(ranks=2, sizes=1000, contenders=[raises], **QUICK)


def test_tensorflow_is_timed_in_a_process_of_its_own():
    asked = ["tensorflow_one_device", "tensorflow_hierarchical", "tensorflow_ring"]
    found = bench.measure(ranks=2, sizes="4k:8k", contenders=asked, **QUICK)
    assert found.contenders == tuple(asked)
    assert found.correct
    assert all(found.libraries[name].startswith("TensorFlow 2.") for name in asked)


def test_what_is_not_installed_is_left_out_and_said(monkeypatch):
    def nowhere(name):
        return None if name == "torch" else importlib.util.find_spec(name)

    monkeypatch.setattr(entrants.importlib.util, "find_spec", nowhere)
    with pytest.raises(LabError, match=r"Nothing .* torch is not installed here: pip install"):
        bench.measure(contenders=["gloo", "nccl"])


def test_without_mpi_the_reason_is_the_one_that_helps(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "mpi4py" else real(name)
    )
    with pytest.raises(LabError, match=r"mpi4py is not installed .* make lab"):
        bench.measure(contenders=["mpi", "ring_all_reduce"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"collective": "all_reduced"}, "no collective that is timed"),
        ({"ranks": 1}, "Give 2 to 64"),
        ({"dtype": "complex64"}, "Take one of float32"),
        ({"rounds": 0}, "at least one round"),
        ({"contenders": ["openmpi"]}, "'openmpi' does no all_reduce here. There is: mpi, "),
        ({"contenders": []}, "give at least one"),
        ({"contenders": ["mpi", "mpi"]}, "each once"),
        ({"collective": "broadcast", "contenders": ["ring_all_reduce"]}, "does no broadcast"),
        ({"contenders": [lambda comm, buffer: None]}, "A lambda cannot be sent"),
    ],
)
def test_a_mistake_is_explained_before_anything_starts(asked, said, monkeypatch):
    monkeypatch.setattr(conversation.subprocess, "Popen", None)
    with pytest.raises(LabError) as caught:
        bench.measure(**asked)
    assert said in str(caught.value)
