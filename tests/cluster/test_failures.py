"""Ranks that fail: who, where, what the others did; and the cause before its consequences."""

import os
import signal
import sys
import threading
import time

import pytest

import labkit
from labkit.cluster.engine import Ended, Returned, Stack, Started, Wrote
from labkit.cluster.failures import RankError, cause_of, died, failure, line_of_stack
from labkit.cluster.run import RankStates
from labkit.kinds import LabError


@pytest.fixture(scope="module")
def four():
    with labkit.cluster(ranks=4) as c:
        yield c


def waits(_rank):
    while True:
        time.sleep(1)


def fault_of(c, program, *args, **keywords):
    with pytest.raises(LabError) as caught:
        c.run(program, *args, **keywords)
    return caught.value


def test_ranks_at_the_same_line_are_named_together(four):
    def divides(rank):
        return 1 / 0 if rank == 2 else waits(rank)

    fault = fault_of(four, divides)
    assert str(fault).startswith("Rank 2 raised ZeroDivisionError: division by zero, in line")
    assert "Ranks 0, 1 and 3 were in line" in str(fault)
    assert "in waits" in fault.errors[0].stack


def test_the_same_fault_on_every_rank_is_told_once(four):
    def all_fail(rank):
        raise ValueError("everywhere")

    fault = fault_of(four, all_fail)
    assert str(fault).count("everywhere, in line") == 1
    assert "So did ranks" in str(fault)
    assert set(fault.errors) == {0, 1, 2, 3}


def test_an_exception_that_cannot_be_sent_comes_back_as_words(four):
    class Mine(Exception):
        def __init__(self, what, how):
            super().__init__(f"{what} {how}")

    def raises(rank):
        raise Mine("too", "big")

    fault = fault_of(four, raises)
    assert "raised Mine: too big" in str(fault)
    assert fault.errors[0].exception is None  # Exception's own __reduce__ forgets `how`


def test_a_program_that_cannot_be_loaded_in_the_ranks_says_why(four):
    class Refuses:
        def __setstate__(self, state):
            raise RuntimeError("not here")

        def __getstate__(self):
            return {"some": "state"}

    fault = fault_of(four, lambda rank, thing: rank, Refuses())
    assert "raised RuntimeError: not here" in str(fault)


def test_a_crash_in_a_library_says_where(four):
    def crashes(rank):
        import ctypes

        if rank == 3:
            ctypes.string_at(0)
        waits(rank)

    fault = fault_of(four, crashes)
    assert "Rank 3 was killed by signal 11 (SIGSEGV)" in str(fault)
    assert "of crashes (`ctypes.string_at(0)`). A library crashed in it." in str(fault)


def test_a_rank_can_be_killed_before_it_has_started(four):
    run = four.start(waits, show=False)
    run.kill(3)  # the one that is forked last
    assert "Rank 3 was killed by signal 9 (SIGKILL)" in str(run.finish().fault)


def test_a_stopped_rank_is_found_and_ended(four):
    def stops(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return rank

    assert "it is stopped (SIGSTOP)" in str(fault_of(four, stops, deadline=0.5))


def test_a_rank_can_be_paused_and_resumed(four):
    def counts(rank):
        for number in range(1000):
            print(f"number {number}")
            time.sleep(0.01)

    run = four.start(counts, show=False)
    run.wait_for("number 3", rank=1)
    run.pause(1)
    run.resume(1)
    assert run.wait_for("number 30", rank=1).seconds > 0
    run.stop()
    with pytest.raises(LabError, match="Rank 1 has ended already"):
        run.kill(1)


def test_waiting_for_words_that_never_come_has_an_end(four):
    run = four.start(waits)
    with pytest.raises(LabError, match=r"In 0.1 s no rank has written 'never'"):
        run.wait_for("never", deadline=0.1)
    run.stop()
    run = four.start(lambda rank: rank)
    with pytest.raises(LabError, match=r"ended, and rank 1 has not written 'never'"):
        run.wait_for("never", rank=1)


def test_ranks_that_do_not_start_in_time_are_named():
    class Slow:
        def __setstate__(self, state):
            time.sleep(60 if os.environ["RANK"] == "1" else 0)

        def __getstate__(self):
            return {"some": "state"}

    with labkit.cluster(ranks=2, keep_warm=True):
        pass  # its fork server has started
    with labkit.cluster(ranks=2, start=1) as c:
        fault = fault_of(c, lambda rank, slow: rank, Slow())
    assert "Rank 1 has not started in 1 s" in str(fault)
    assert "start=180" in str(fault)


def test_who_only_lost_a_peer_is_not_the_cause():
    noticed = RankError(0, "raised", "Rank 0 raised UnavailableError: Socket closed.", seconds=1.0)
    own = RankError(0, "raised", "Rank 0 raised ValueError: bad.", seconds=1.0)
    killed, later = died(1, -9, 1.1, ""), died(2, -9, 1.2, "")
    assert cause_of([noticed, killed]) is killed
    assert cause_of([killed, own]) is own
    assert cause_of([noticed]) is noticed
    assert cause_of([noticed, killed], tolerated={1}) is killed
    assert cause_of([noticed, killed, later], tolerated={1}) is later
    fault = failure(killed.text, {0: noticed, 1: killed}, {})
    assert str(fault).endswith("Then rank 0 raised UnavailableError: Socket closed.")


def test_the_line_of_a_stack_is_that_of_the_thread_that_runs_the_program():
    stack = f"""Thread 0x01 (most recent call first):
  File "/x/other.py", line 3 in background

Current thread 0x02 (most recent call first):
  File "{threading.__file__}", line 3 in wait
  File "/x/train.py", line 12 in train
  File "/x/labkit/cluster/in_rank.py", line 99 in call_program
"""
    assert line_of_stack(stack) == "line 12 of train"
    assert line_of_stack("nothing of the kind") == ""


def states_after(*events):
    states = RankStates(2, show=False)
    for event in (Started(0, 10, "here"), *events):
        states.take(event)
    return states


def test_a_rank_that_dies_before_all_have_started_had_not_begun():
    states = states_after(Ended(1, 3))
    assert states.errors[1].text.endswith("It had not begun the program.")
    assert not states.all_started


def test_a_result_that_cannot_be_read_here_is_an_error_of_its_rank():
    states = states_after(Returned(0, b""))
    assert "cannot be read here: Ran out of input" in states.errors[0].text
    assert states.at_work() == [1]


def test_a_rank_at_work_was_where_its_latest_stack_says_or_after_its_latest_line():
    frame = 'Current thread 0x1:\n  File "/x/a.py", line 3 in {}\n  File "/y", line 1 in {}\n'
    states = states_after(
        Started(1, 11, "here"),
        Stack(0, frame.format("before", "call_program")),
        Wrote(1, "out", b"begins\n"),
    )
    states.forget_stacks([0])
    states.take(Stack(0, frame.format("now", "call_program")))
    states.leave(0, "hung")
    states.leave(1, "hung")
    assert states.errors[0].where == "line 3 of now"
    assert states.errors[1].where == "an unknown line, after it wrote 'begins'"


def test_an_exception_does_not_load_its_library_here(four, tmp_path, monkeypatch):
    """To load TensorFlow for its exception would hold up the sentence for seconds."""
    (tmp_path / "some_library.py").write_text("class SomeError(Exception): pass")
    monkeypatch.syspath_prepend(tmp_path)

    def raises(rank):
        import some_library

        raise some_library.SomeError("why")

    fault = fault_of(four, raises)
    assert "raised SomeError: why" in str(fault)
    assert fault.errors[0].exception is None
    assert "some_library" not in sys.modules
