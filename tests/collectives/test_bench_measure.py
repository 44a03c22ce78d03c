"""Real collectives on real ranks: right results, faults in words, and no process left behind."""

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
from labkit.collectives.bench import protocol
from labkit.collectives.bench.bandwidth import COLLECTIVES
from labkit.collectives.mpi.launch import mpiexec

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
    own = [my_ring, forgets_the_last]
    found = bench.measure(ranks=3, sizes=[4, 4002], contenders=[*names, *own], **QUICK)
    assert found.contenders == (*names, "my_ring", "forgets_the_last")
    assert found.sizes == (4, 4000)
    wrong = {one.contender for one in found.timings if one.wrong}
    assert wrong == {"forgets_the_last"}
    assert all(len(one.seconds) == 3 for one in found.timings)
    assert "mpi4py" in found.libraries["mpi"]
    assert found.kind.name == "measured"


@with_mpi
@pytest.mark.parametrize("collective", OTHERS)
def test_every_collective_of_the_library_leaves_what_ours_leaves(collective):
    names = ["mpi", *(name for name, meaning in programs.MEANING.items() if meaning == collective)]
    found = bench.measure(collective, ranks=3, sizes=1000, contenders=names, **QUICK)
    assert found.correct
    assert found.contenders == tuple(names)


@with_mpi
def test_ranks_end_when_the_process_that_measures_is_killed(tmp_path):
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
    (tmp_path / "parent.py").write_text(program)
    left = tmp_path / "left"
    left.mkdir()
    source = str(Path(bench.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": source, "TMPDIR": str(left)}
    with subprocess.Popen([sys.executable, tmp_path / "parent.py"], env=environment) as parent:
        until = time.monotonic() + 60
        while not (started := [one for one in tmp_path.iterdir() if one.name.isdigit()]):
            assert parent.poll() is None, "it ended by itself"
            assert time.monotonic() < until, "no rank has started"
        ranks = [psutil.Process(int(one.name)) for one in started]
        parent.kill()
    assert psutil.wait_procs(ranks, timeout=30)[1] == [], "a rank outlived the measurement"
    assert [one for one in left.iterdir() if one.name.startswith("labkit-bench-")] == []


@with_mpi
def test_a_program_that_waits_for_ever_is_stopped():
    def waits(comm, buffer):
        comm.Recv(buffer, source=(comm.Get_rank() + 1) % comm.Get_size())

    with pytest.raises(LabError, match="waits had not finished after 5 s, and was stopped"):
        bench.measure(ranks=2, sizes=1000, contenders=[waits], **{**QUICK, "deadline": 5.0})


@with_mpi
def test_a_program_that_raises_names_its_rank_and_its_words():
    def raises(comm, buffer):
        if comm.Get_rank() == 1:
            raise ValueError("no such chunk")
        comm.Barrier()

    with pytest.raises(LabError, match="rank 1 raised ValueError: no such chunk"):
        bench.measure(ranks=2, sizes=1000, contenders=[raises], **QUICK)


def test_tensorflow_is_timed_in_a_process_of_its_own():
    names = ("tensorflow_one_device", "tensorflow_hierarchical", "tensorflow_ring")
    found = bench.measure(ranks=2, sizes="4k:8k", contenders=names, **QUICK)
    assert found.contenders == names
    assert found.correct
    assert all(found.libraries[name].startswith("TensorFlow 2.") for name in names)


@pytest.mark.parametrize(
    ("library", "contenders"), [("torch", ["gloo", "nccl"]), ("mpi4py", ["mpi", "ring_all_reduce"])]
)
def test_what_is_not_installed_is_said(library, contenders, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == library else real(name)
    )
    with pytest.raises(LabError, match=f"No contender can be timed here. {library} is not inst"):
        bench.measure(contenders=contenders)


@pytest.mark.parametrize(
    ("arguments", "keyword"),
    [
        ({"collective": "all_reduced"}, "collective"),
        ({"ranks": 1}, "ranks"),
        ({"dtype": "complex64"}, "dtype"),
        ({"rounds": 0}, "rounds"),
        ({"contenders": ["openmpi"]}, "contender"),
        ({"contenders": []}, "contenders"),
        ({"contenders": ["mpi", "mpi"]}, "once"),
        ({"collective": "broadcast", "contenders": ["ring_all_reduce"]}, "contender"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_starts(arguments, keyword, monkeypatch):
    monkeypatch.setattr(protocol.subprocess, "Popen", None)
    with pytest.raises(LabError, match=keyword):
        bench.measure(**arguments)
