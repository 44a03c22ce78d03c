"""The contract of an engine, kept by each of them: what users of a cluster see."""

import json
import os
import signal
import time

import numpy as np
import pytest

import labkit
from labkit.cluster import this_rank
from labkit.kinds import LabError


@pytest.fixture(scope="module", params=["local", "slurm"])
def three(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "slurm":
            for name, value in request.getfixturevalue("one_slurm").environment.items():
                patch.setenv(name, value)
        environment = {"GIVEN": 7, "HOME": None}
        with labkit.cluster(ranks=3, engine=request.param, environment=environment) as c:
            yield c


def waits(_rank):
    while True:
        time.sleep(0.1)


def fault_of(c, program, *args, **keywords):
    with pytest.raises(LabError) as caught:
        c.run(program, *args, **keywords)
    return caught.value


def test_every_rank_is_a_new_process_that_knows_who_it_is(three, monkeypatch):
    monkeypatch.setenv("SET_IN_A_CELL", "yes")
    large = np.arange(1_000_000, dtype="float64")

    def program(rank, array):
        return array * rank, this_rank(), dict(os.environ), os.getpid()

    pids = {os.getpid()}
    for results in (three.run(program, large), three.run(program, large)):
        for rank, (array, me, found, pid) in enumerate(results):
            np.testing.assert_array_equal(array, large * rank)
            assert (me.rank, me.ranks, me.role, me.index) == (rank, 3, "worker", rank)
            assert me.engine == three.engine.name
            assert (found["RANK"], found["WORLD_SIZE"]) == (str(rank), "3")
            assert {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} <= set(found)
            assert json.loads(found["TF_CONFIG"]) == {
                "cluster": {"worker": list(me.addresses)},
                "task": {"type": "worker", "index": rank},
            }
            master = f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}"
            assert len({master, *me.addresses}) == 4
            # Yours win over the session's, and None removes one.
            assert (found["SET_IN_A_CELL"], found["GIVEN"], found.get("HOME")) == ("yes", "7", None)
            pids.add(pid)
    assert len(pids) == 7


def test_no_rank_begins_before_all_have_started(three, tmp_path):
    class Slow:
        """Rank 1 unpacks it later than the others."""

        def __setstate__(self, state):
            time.sleep(0.5 if os.environ["RANK"] == "1" else 0)
            (tmp_path / os.environ["RANK"]).touch()

        def __getstate__(self):
            return {"some": "state"}

    def started(rank, _slow):
        return sorted(path.name for path in tmp_path.iterdir())

    assert three.run(started, Slow()) == [["0", "1", "2"]] * 3


def test_ranks_that_have_returned_stay_for_the_others(three, tmp_path):
    def program(rank):
        if rank:
            (tmp_path / f"{rank}").write_text(str(os.getpid()))
            return True
        files = [tmp_path / "1", tmp_path / "2"]
        until = time.monotonic() + 20
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < until
        time.sleep(0.3)
        for file in files:
            os.kill(int(file.read_text()), 0)  # it raises if the rank is gone
        return True

    assert three.run(program) == [True] * 3


def test_lines_come_while_the_program_runs_and_a_rank_can_be_killed(three, capfd):
    def writes(rank):
        print("begun", rank)
        os.write(2, b"on stderr\n")
        waits(rank)

    run = three.start(writes)
    for rank in range(3):
        assert run.wait_for(f"begun {rank}", rank=rank).text == f"begun {rank}"
        assert run.wait_for("on stderr", rank=rank).stream == "err"
    with pytest.raises(LabError, match="Another run has not ended"):
        three.run(abs)
    run.kill(1)
    outcome = run.finish()
    assert "Rank 1 was killed by signal 9 (SIGKILL)" in str(outcome.fault)
    assert (outcome.errors[0].what, outcome.errors[1].what) == ("stopped", "died")
    found = capfd.readouterr()
    assert "rank 0: begun 0\n" in found.out
    assert "rank 1: on stderr\n" in found.err
    assert "begun 1" in three.output(1)


def test_an_exception_names_rank_and_line_and_stops_the_others(three):
    def divides(rank):
        if rank == 2:
            time.sleep(0.2)
        return {0: waits, 1: abs, 2: lambda rank: 1 / 0}[rank](rank)

    fault = fault_of(three, divides)
    assert "Rank 2 raised ZeroDivisionError: division by zero, in line" in str(fault)
    assert "1 / 0" in fault.errors[2].where
    assert "time.sleep(0.1)" in fault.errors[0].where
    assert {rank: error.what for rank, error in fault.errors.items()} == {0: "stopped", 2: "raised"}
    assert isinstance(fault.__cause__, ZeroDivisionError)
    assert "divides" in fault.errors[2].traceback
    assert fault.results == {1: 1}


def test_a_rank_that_ends_itself_is_named_with_how_and_where(three):
    def kills_itself(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        waits(rank)

    def leaves(rank):
        if rank == 0:
            os._exit(5)
        waits(rank)

    fault = fault_of(three, kills_itself)
    assert "Rank 1 was killed by signal 9 (SIGKILL)" in str(fault)
    assert "of kills_itself (`os.kill(os.getpid(), signal.SIGKILL)`)" in str(fault)
    assert "Rank 0 ended itself with exit status 5" in str(fault_of(three, leaves))


def test_the_timeout_says_where_every_rank_was_also_in_a_library_that_holds_the_interpreter(three):
    def some_hang(rank):
        import re

        if rank == 2:
            re.match("(a+)+$", "a" * 60 + "b")
        return waits(rank) if rank == 1 else rank

    fault = fault_of(three, some_hang, timeout=0.5)
    assert str(fault).startswith("some_hang had not ended after 0.5 s. Rank 1 was in line")
    assert "of waits (`time.sleep(0.1)`)" in str(fault)
    assert 're.match("(a+)+$"' in fault.errors[2].where
    assert "in some_hang" in fault.errors[2].stack
    assert fault.results == {0: 0}
    assert fault.errors[1].what == "hung"


def test_a_run_may_end_before_all_have_returned_and_tolerate_a_death(three):
    def program(rank):
        if rank == 2:
            os._exit(1)
        time.sleep(0.3)
        return rank if rank == 0 else waits(rank)

    assert three.run(program, until={0}, tolerate={2}) == [0, None, None]


def test_a_result_that_cannot_be_sent_is_named_with_its_type(three):
    fault = fault_of(three, lambda rank: (x for x in range(rank)))
    assert "what it returned (type generator) cannot be sent" in str(fault)
    assert three.run(abs) == [0, 1, 2]
