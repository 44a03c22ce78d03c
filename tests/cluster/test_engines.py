"""The contract of an engine, kept by each of them: what users of a cluster see."""

import ctypes
import json
import os
import select
import time

import numpy as np
import pytest

import labkit
from labkit.cluster import this_rank
from labkit.kinds import LabError
from tests.cluster.programs import LateOnRank1, waits


@pytest.fixture(scope="module", params=["local", "slurm"])
def three(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "slurm":
            for name, value in request.getfixturevalue("one_slurm").environment.items():
                patch.setenv(name, value)
        environment = {"GIVEN": 7, "HOME": None}
        with labkit.cluster(ranks=3, engine=request.param, variables=environment) as c:
            yield c


def test_every_rank_is_a_new_process_that_knows_who_it_is_and_begins_with_all_others(
    three, monkeypatch, tmp_path
):
    monkeypatch.setenv("SET_IN_A_CELL", "yes")
    large = np.arange(100_000, dtype="float64")

    def program(rank, array, _slow):
        begun = sorted(path.name for path in tmp_path.iterdir())
        return array * rank, this_rank(), dict(os.environ), os.getpid(), begun

    pids = {os.getpid()}
    for run in range(2):
        for rank, (array, me, found, pid, begun) in enumerate(
            three.run(program, large, LateOnRank1(tmp_path))
        ):
            np.testing.assert_array_equal(array, large * rank)
            assert (me.rank, me.ranks, me.role, me.index) == (rank, 3, "worker", rank)
            assert (found["RANK"], found["WORLD_SIZE"]) == (str(rank), "3")
            assert {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} <= set(found)
            assert json.loads(found["TF_CONFIG"])["task"] == {"type": "worker", "index": rank}
            master = f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}"
            assert len({master, *me.addresses}) == 4
            # Yours win over the session's, and None removes one.
            assert (found["SET_IN_A_CELL"], found["GIVEN"], found.get("HOME")) == ("yes", "7", None)
            assert run or begun == ["0", "1", "2"]
            pids.add(pid)
    assert len(pids) == 7


def test_lines_come_while_the_program_runs_and_a_rank_can_be_killed(three, capfd):
    def writes(rank):
        print("begun", rank)
        os.write(2, b"on stderr\n")
        return rank and waits(rank)

    run = three.start(writes)
    for rank in range(3):
        assert run.wait_for(f"begun {rank}", rank=rank).text == f"begun {rank}"
        assert run.wait_for("on stderr", rank=rank).stream == "err"
    with pytest.raises(LabError, match="Another run has not ended"):
        three.run(abs)
    run.kill(1)
    outcome = run.finish()
    assert "Rank 1 was killed by signal 9 (SIGKILL)" in str(outcome.fault)
    assert "of waits (`threading.Event().wait()`)" in outcome.errors[2].where
    assert {rank: error.what for rank, error in outcome.errors.items()} == {1: "died", 2: "stopped"}
    assert outcome.results == {0: 0}
    found = capfd.readouterr()
    assert "rank 0: begun 0\n" in found.out
    assert "rank 1: on stderr\n" in found.err
    assert "begun 1" in three.output(1)


def test_an_exception_names_rank_and_line_and_stops_the_others(three):
    def divides(rank):
        return 1 / (rank - 2) if rank == 2 else waits(rank)

    with pytest.raises(LabError) as caught:
        three.run(divides)
    fault = caught.value
    assert "Rank 2 raised ZeroDivisionError: division by zero, in line" in str(fault)
    assert "1 / (rank - 2)" in fault.errors[2].where
    assert "of divides" in fault.errors[2].where
    assert "in divides" in fault.errors[2].traceback
    assert fault.errors[0].what == "stopped"


def test_a_run_may_end_before_all_have_returned_and_tolerate_a_death(three, tmp_path):
    """Ranks that have returned stay for the others, whose servers they may be."""

    def program(rank):
        if rank == 2:
            os._exit(5)
        if rank == 1:
            (tmp_path / "new").write_text(str(os.getpid()))
            (tmp_path / "new").rename(tmp_path / "pid")
            return "returned"
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        process = os.pidfd_open(int((tmp_path / "pid").read_text()))
        return select.select([process], (), (), 0.3)[0]  # it can be read when the process is gone

    outcome = three.start(program, until={0}, tolerate={2}).finish()
    assert outcome.fault is None
    assert outcome.results == {0: [], 1: "returned"}
    assert "Rank 2 ended itself with exit status 5" in outcome.errors[2].text


def test_the_timeout_says_where_every_rank_was_also_in_a_library_that_holds_the_interpreter(three):
    def some_hang(rank):
        if rank == 2:
            reader, _writer = os.pipe()
            ctypes.PyDLL(None).read(reader, bytes(1), 1)  # with the lock of the interpreter
        return (
            ctypes.CDLL(None).pause() if rank == 1 else rank
        )  # the signal of the question wakes it

    with pytest.raises(LabError) as caught:
        three.run(some_hang, timeout=0.5)
    fault = caught.value
    assert str(fault).startswith("some_hang had not ended after 0.5 s. Rank 1 was in line")
    assert "ctypes.PyDLL(None).read(reader" in fault.errors[2].where
    assert "in some_hang" in fault.errors[2].stack
    assert fault.results == {0: 0}
    assert fault.errors[1].what == "hung"
    assert three.run(abs) == [0, 1, 2]
