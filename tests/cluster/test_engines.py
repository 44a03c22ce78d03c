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
def two(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "slurm":
            for name, value in request.getfixturevalue("one_slurm").environment.items():
                patch.setenv(name, value)
        with labkit.cluster(
            ranks=2, engine=request.param, environment={"GIVEN": 7, "HOME": None}
        ) as c:
            yield c


def waits(_rank):
    while True:
        time.sleep(0.1)


def fault_of(c, program, *args, **keywords):
    with pytest.raises(LabError) as caught:
        c.run(program, *args, **keywords)
    return caught.value


def test_every_rank_calls_the_program_and_results_come_by_rank(two):
    assert two.run(lambda rank, by: rank * by, 10) == [0, 10]


def test_results_and_arguments_may_be_large(two):
    array = np.arange(1_000_000, dtype="float64")
    for rank, found in enumerate(two.run(lambda rank, array: array * rank, array)):
        np.testing.assert_array_equal(found, array * rank)


def test_every_run_has_fresh_processes(two):
    def pid(rank):
        return os.getpid()

    assert len({*two.run(pid), *two.run(pid), os.getpid()}) == 5


def test_a_rank_knows_who_it_is_and_where_the_others_are(two):
    def who(rank):
        return this_rank(), dict(os.environ)

    for rank, (me, found) in enumerate(two.run(who)):
        assert (me.rank, me.ranks, me.role, me.index) == (rank, 2, "worker", rank)
        assert me.engine == two.engine.name
        assert me.addresses == two.addresses
        assert (found["RANK"], found["WORLD_SIZE"]) == (str(rank), "2")
        assert {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} <= set(found)
        assert json.loads(found["TF_CONFIG"]) == two.tf_config(rank)
        assert f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}" not in two.addresses


def test_your_variables_win_and_none_removes_one(two, monkeypatch):
    monkeypatch.setenv("SET_IN_A_CELL", "yes")

    def seen(rank):
        return [os.environ.get(name) for name in ("SET_IN_A_CELL", "GIVEN", "HOME")]

    assert two.run(seen) == [["yes", "7", None]] * 2


def test_no_rank_begins_before_all_have_started(two, tmp_path):
    class Slow:
        """Rank 1 unpacks it later than rank 0."""

        def __setstate__(self, state):
            time.sleep(0.5 if os.environ["RANK"] == "1" else 0)
            (tmp_path / os.environ["RANK"]).touch()

        def __getstate__(self):
            return {"some": "state"}

    def started(rank, _slow):
        return sorted(path.name for path in tmp_path.iterdir())

    assert two.run(started, Slow()) == [["0", "1"]] * 2


def test_ranks_that_have_returned_stay_for_the_others(two, tmp_path):
    def program(rank):
        if rank == 0:
            (tmp_path / "pid").write_text(f"{os.getpid()} ")
            return True
        until = time.monotonic() + 20
        while not ((file := tmp_path / "pid").exists() and file.read_text().endswith(" ")):
            assert time.monotonic() < until
        time.sleep(0.3)
        os.kill(int(file.read_text()), 0)  # it raises if rank 0 is gone
        return True

    assert two.run(program) == [True, True]


def test_lines_come_while_the_program_runs_each_with_its_rank(two, capfd):
    def writes(rank):
        print("begun", rank)
        os.write(2, b"on stderr\n")
        waits(rank)

    run = two.start(writes)
    for rank in range(2):
        assert run.wait_for(f"begun {rank}", rank=rank).text == f"begun {rank}"
        assert run.wait_for("on stderr", rank=rank).stream == "err"
    run.stop()
    found = capfd.readouterr()
    assert "rank 0: begun 0\n" in found.out
    assert "rank 1: on stderr\n" in found.err
    assert "begun 1" in two.output(1)
    assert run.finish().fault is None


def test_an_exception_names_rank_and_line_and_stops_the_others(two):
    def divides(rank):
        return 1 / 0 if rank == 1 else waits(rank)

    fault = fault_of(two, divides)
    assert "Rank 1 raised ZeroDivisionError: division by zero, in line" in str(fault)
    assert "of divides (`return 1 / 0 if rank == 1 else waits(rank)`)" in str(fault)
    assert "Rank 0 was in line" in str(fault)
    assert {rank: error.what for rank, error in fault.errors.items()} == {0: "stopped", 1: "raised"}
    assert isinstance(fault.__cause__, ZeroDivisionError)
    assert "divides" in fault.errors[1].traceback


def test_results_of_the_others_are_kept(two):
    def one_fails(rank):
        if rank == 1:
            time.sleep(0.1)
            raise ValueError("one")
        return "well"

    assert fault_of(two, one_fails).results == {0: "well"}


def test_a_rank_that_kills_itself_is_named_with_its_signal_and_line(two):
    def kills_itself(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        waits(rank)

    fault = fault_of(two, kills_itself)
    assert "Rank 1 was killed by signal 9 (SIGKILL)" in str(fault)
    assert "of kills_itself (`os.kill(os.getpid(), signal.SIGKILL)`)" in str(fault)
    assert fault.errors[1].what == "died"


def test_a_rank_that_ends_itself_is_named_with_its_exit_status(two):
    def leaves(rank):
        if rank == 0:
            os._exit(5)
        waits(rank)

    assert "Rank 0 ended itself with exit status 5" in str(fault_of(two, leaves))


def test_a_rank_that_is_killed_from_outside_is_named(two):
    run = two.start(lambda rank: (print("here", flush=True), waits(rank)))
    for rank in range(2):
        run.wait_for("here", rank=rank)
    run.kill(1)
    outcome = run.finish()
    assert "Rank 1 was killed by signal 9 (SIGKILL)" in str(outcome.fault)
    assert outcome.errors[0].what == "stopped"


def test_the_deadline_says_where_every_rank_was(two):
    def one_waits(rank):
        return waits(rank) if rank == 1 else rank

    fault = fault_of(two, one_waits, deadline=0.5)
    assert str(fault).startswith("one_waits had not ended after 0.5 s. Rank 1 was in line")
    assert "of waits (`time.sleep(0.1)`)" in str(fault)
    assert fault.results == {0: 0}
    assert fault.errors[1].what == "hung"


def test_a_rank_stuck_in_a_library_that_holds_the_interpreter_is_found(two):
    def stuck(rank):
        import re

        return re.match("(a+)+$", "a" * 60 + "b") if rank == 1 else rank

    assert 're.match("(a+)+$"' in str(fault_of(two, stuck, deadline=0.5))


def test_the_run_is_over_when_the_ranks_of_until_have_returned(two):
    assert two.run(lambda rank: rank if rank == 0 else waits(rank), until={0}) == [0, None]


def test_a_tolerated_rank_may_die(two):
    def dies(rank):
        if rank == 1:
            os._exit(1)
        time.sleep(0.3)
        return rank

    assert two.run(dies, tolerate={1}) == [0, None]


def test_a_result_that_cannot_be_sent_is_named_with_its_type(two):
    fault = fault_of(two, lambda rank: (x for x in range(rank)))
    assert "what it returned (type generator) cannot be sent" in str(fault)


def test_a_second_run_while_one_goes_is_refused(two):
    run = two.start(waits)
    with pytest.raises(LabError, match="Another run has not ended"):
        two.run(abs)
    run.stop()
    assert two.run(abs) == [0, 1]
