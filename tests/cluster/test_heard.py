"""What has been heard of the ranks of a run: events one by one, and what they amount to."""

from labkit.cluster.engine import Ended, Output, Raised, Ready, Returned, Stack
from labkit.cluster.heard import Heard
from labkit.shipping import pack


def heard(*events, ranks=2):
    found = Heard(ranks, show=False)
    for event in events:
        found.take(event)
    return found


READY = (Ready(0, 10, "here"), Ready(1, 11, "here"))


def returned(rank, value):
    return Returned(rank, pack((value, ()), "a value"))


def test_ranks_are_silent_until_they_have_returned_or_failed():
    assert heard(*READY).silent() == [0, 1]
    found = heard(*READY, returned(0, "well"), Ended(1, -9))
    assert (found.silent(), found.results) == ([], {0: "well"})
    assert found.errors[1].text.startswith("Rank 1 was killed by signal 9 (SIGKILL)")


def test_the_end_of_a_rank_that_has_returned_is_no_fault():
    assert heard(*READY, returned(0, 1), Ended(0, 0)).errors == {}


def test_who_dies_before_all_are_ready_had_not_begun():
    found = heard(READY[0], Ended(1, 3))
    assert found.errors[1].text.endswith("It had not begun the program.")
    assert found.who_is_not_ready() == "Rank 1 was not ready"
    assert not found.all_ready


def test_a_result_that_cannot_be_read_here_is_its_ranks_fault():
    found = heard(*READY, Returned(0, b""))
    assert found.errors[0].text == "What rank 0 returned cannot be read here: Ran out of input"
    assert found.silent() == [1]


def test_a_line_is_found_before_it_has_an_end():
    found = heard(*READY, Output(1, "out", b"step 1\nstep"), Output(1, "out", b" 2"))
    assert found.line_with("step 2", None).rank == 1
    assert found.line_with("step 2", 0) is None
    assert found.line_with("step", 1).text == "step 1"


def test_who_was_left_at_work_was_where_its_latest_stack_says():
    frame = 'Current thread 0x1:\n  File "/x/{}.py", line 3 in {}\n  File "/y", line 1 in prepare\n'
    found = heard(*READY, Stack(0, frame.format("a", "before")), Stack(1, "", stopped=True))
    found.forget_places([0])
    assert not found.have_said_where([0, 1], quiet=0.0)
    found.take(Stack(0, frame.format("a", "now")))
    assert found.have_said_where([0, 1], quiet=0.0)
    for rank in (0, 1):
        found.leave(rank, "hung")
    assert found.errors[0].where == "line 3 of now"
    assert found.errors[1].where == "no line at all: it is stopped (SIGSTOP)"


def test_who_says_no_place_is_known_by_its_latest_line():
    found = heard(*READY, Output(0, "out", b"begins\n"))
    found.leave(0, "stopped")
    assert found.errors[0].where == "an unknown place, after it wrote 'begins'"
    assert heard(ranks=1).who_is_not_ready() == "Rank 0 was not ready"


def test_only_a_rank_that_raised_has_an_exception():
    from labkit.cluster.rank import run_program
    from labkit.shipping import pack_program

    how, payload = run_program(pack_program(abs, ("no number",)), 0)
    assert how == "raised"
    assert isinstance(heard(*READY, Raised(0, payload)).errors[0].exception, TypeError)
