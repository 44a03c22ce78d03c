"""Ranks that fail: who, where, what the others did; and the cause before its consequences."""

import re
import sys
import threading
import time

import numpy as np
import psutil
import pytest

import labkit
from labkit.cluster.ranks import handle
from labkit.cluster.ranks.failures import RankError, cause_of, died, failure, line_of_stack
from labkit.kinds import LabError
from tests.cluster.programs import NotHere, waits


def fault_of(c, program, *args, **keywords):
    with pytest.raises(LabError) as caught:
        c.run(program, *args, **keywords)
    return caught.value


def test_ranks_at_the_same_line_are_named_together(four):
    def some_fail(rank):
        if rank < 2:
            raise ValueError("twice")
        return waits(rank)

    fault = fault_of(four, some_fail)
    assert str(fault).count("twice, in line") == 1
    assert "So did rank" in str(fault)
    assert "Ranks 2 and 3 were in line" in str(fault)
    assert set(fault.errors) == {0, 1, 2, 3}


def test_exceptions_come_as_words_and_a_library_is_not_loaded_here_for_them(
    four, tmp_path, monkeypatch
):
    """To load TensorFlow for its exception would hold up the sentence for seconds."""
    (tmp_path / "some_library.py").write_text("class SomeError(Exception): pass")
    monkeypatch.syspath_prepend(tmp_path)

    def raises(rank):
        import some_library

        if rank == 1:
            raise LabError("The sentence of labkit.")
        raise some_library.SomeError("\x1b[1mwhy\n  File of a node")

    fault = fault_of(four, raises)
    assert "raised SomeError: why, in line" in fault.errors[0].text
    assert (fault.errors[0].kind, fault.errors[1].kind) == ("SomeError", "LabError")
    assert fault.errors[1].text.endswith("`): The sentence of labkit.")
    assert "some_library" not in sys.modules


def test_indented_lines_of_a_message_are_told_without_those_of_a_graph(four):
    grpc = '_Rpc that ended with:\n\tstatus = UNAVAILABLE\n\tdetails = "127.0.0.1:9"'
    graph = '\n  File "a.py", line 3, in f\n    x = y\n\nArguments received by D.call():\n  • x=1'

    def raises(rank):
        raise ValueError(grpc + graph)

    text = fault_of(four, raises).errors[0].text
    assert 'ended with: status = UNAVAILABLE details = "127.0.0.1:9", in line' in text


def test_what_cannot_be_loaded_in_the_ranks_or_sent_back_is_named(four):
    fault = fault_of(four, lambda rank, thing: rank, NotHere())
    assert "raised RuntimeError: not here" in str(fault)
    fault = fault_of(four, lambda rank: (x for x in range(rank)))
    assert "what it returned (type generator) cannot be sent" in str(fault)
    fault = fault_of(four, lambda rank: exec("class Odd(Exception): __str__ = None\nraise Odd"))
    assert "raised Odd" in str(fault)


def test_a_crash_in_a_library_says_where(four):
    def crashes(rank):
        import ctypes

        if rank == 3:
            ctypes.string_at(0)
        waits(rank)

    fault = fault_of(four, crashes)
    assert "Rank 3 was killed by signal 11 (SIGSEGV)" in str(fault)
    assert "of crashes (`ctypes.string_at(0)`). A library crashed in it." in str(fault)


def test_who_has_returned_is_named_and_who_waits_for_it_is_ended(four, monkeypatch):
    def waits_for_rank_3(rank):
        if rank < 3:
            labkit.cluster.communicator().Recv(np.zeros(1), source=3)

    monkeypatch.setattr(handle, "ALONE", 0.3)
    fault = fault_of(four, waits_for_rank_3)
    assert "Ranks 0, 1 and 2 were in line" in str(fault)
    assert "Rank 3 returned." in str(fault)
    fault = fault_of(four, lambda rank: rank == 3 or waits(rank), timeout=0.5)
    assert "Rank 3 returned." in str(fault)
    # Who works longer than ALONE after the others, and waits for none of them, is left to work; on
    # a busy machine beyond its limit, too.
    monkeypatch.setattr(handle, "slowdown", lambda: 600.0)
    assert four.run(lambda rank: rank % 2 and psutil.cpu_percent(1), timeout=0.1)[::2] == [0, 0]


def test_a_wait_as_long_as_the_work_before_is_not_in_vain(four, tmp_path, monkeypatch):
    library = tmp_path / "site-packages" / "tensorflow"  # where collectives are
    library.mkdir(parents=True)
    (library / "deleting.py").write_text("import time\n\ndef wait():\n    time.sleep(1)\n")

    def works_and_waits(rank):
        if rank == 3:
            sys.path.insert(0, str(library))
            import deleting

            until = time.monotonic() + 4
            while time.monotonic() < until:
                pass
            deleting.wait()
        return rank

    monkeypatch.setattr(handle, "ALONE", 0.3)
    assert four.run(works_and_waits) == [0, 1, 2, 3]


def test_a_rank_can_be_paused(four):
    handle = four.start(lambda rank: print("here") or waits(rank), show=False)
    handle.wait_for("here", rank=1)
    handle.pause(1)
    assert "Rank 1 was in no line at all: it is stopped (SIGSTOP)" in str(handle.finish(0.1).fault)
    with pytest.raises(LabError, match="Rank 1 has ended already"):
        handle.kill(1)


def test_waiting_for_words_that_never_come_has_an_end(four):
    handle = four.start(waits)
    with pytest.raises(LabError, match=r"In 0.1 s no rank has written 'never'"):
        handle.wait_for("never", timeout=0.1)
    handle.stop()
    handle = four.start(lambda rank: rank)
    with pytest.raises(LabError, match=r"ended, and rank 1 has not written 'never'"):
        handle.wait_for("never", rank=1)
    handle = four.start(lambda rank: print("ready", end=""), show=False)
    assert handle.wait_for("ready", rank=3).text == "ready"


def test_ranks_that_do_not_start_in_time_are_named():
    with labkit.cluster(ranks=2, keep_warm=True):
        pass  # its fork server has started
    with labkit.cluster(ranks=2, start=1) as c:
        fault = fault_of(c, lambda rank, slow: rank, NotHere(waits={1}))
    assert re.search(r"Ranks? (0 and )?1 ha(s|ve) not started in 1 s", str(fault))
    assert "start=180" in str(fault)


def test_who_only_lost_a_peer_is_not_the_cause():
    noticed = RankError(0, "raised", "raised UnavailableError: Socket closed.", seconds=1.0)
    own = RankError(0, "raised", "raised ValueError: bad.", seconds=1.0)
    killed, later = died(1, -9, 1.1, ""), died(2, -9, 1.2, "")
    assert cause_of([noticed, killed]) is killed
    assert cause_of([killed, own]) is own
    assert cause_of([noticed]) is noticed
    assert cause_of([noticed, killed], tolerated={1}) is killed
    assert cause_of([noticed, killed, later], tolerated={1}) is later
    fault = failure(killed, {0: noticed, 1: killed}, {})
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
