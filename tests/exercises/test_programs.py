"""A program that is handed in is run, proved, counted and shown; what is wrong is said by name."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import ProgramTask, check, tasks

ROOT = Path(__file__).parents[2]
LECTURES = {"06": "06_collectives", "07": "07_ring_all_reduce"}


def cells(lecture):
    return nbformat.read(ROOT / "notebooks" / f"{LECTURES[lecture]}.ipynb", as_version=4).cells


def function(source, name):
    """The function that a student's cell defines."""
    space = {"np": np, "programs": programs}
    exec(compile(source, f"<{name}>", "exec"), space)
    return space[name]


def handed_in(lecture):
    """(task, name of the function, its cell, the solutions that follow) for each program task."""
    found = []
    for cell in cells(lecture):
        call = re.search(r'^check\("([\w.]+)", (my_\w+)\)$', cell.source, re.MULTILINE)
        if cell.cell_type == "code" and call:
            found.append([*call.groups(), cell.source[: call.start()], []])
        elif "<details>" in cell.source:
            found[-1][3] += re.findall(r"```\n(def .*?)```", cell.source, re.DOTALL)
    return found


ASKED = [one for lecture in LECTURES for one in handed_in(lecture)]
SOLUTIONS = [
    pytest.param(task, name, text, id=f"{task}-{number}")
    for task, name, _, solutions in ASKED
    for number, text in enumerate(solutions, start=1)
]
BY_HAND = {
    "06.star_steps": 31,
    "06.reduce_root": 6,
    "06.scatter_bytes": 70,
    "06.all_gather_bytes": 700,
    "06.all_to_all_messages": 240,
    "06.barrier_steps": 7,
    "06.right_by_luck": 4,
    "06.which_collective": "reduce",
    "07.naive_bytes": 30,
    "07.owner": 5,
    "07.ring_bytes": 1.98,
    "07.ring_steps": 198,
    "07.bus_bandwidth": 234.9,
    "07.slow_link": 4,
    # 247 / (8 - 255/256) times 2 µs times 50 GB/s
    "07.crossover": 3.527,
    "07.buckets": 7.85,
    "07.what_is_left": 8,
}


def test_every_program_task_is_asked_in_its_notebook_and_has_a_solution_there():
    asked = {task for task, _, _, solutions in ASKED if solutions}
    known = {**tasks("06"), **tasks("07")}
    assert asked == {name for name, task in known.items() if isinstance(task, ProgramTask)}


@pytest.mark.parametrize(("task", "name", "text"), SOLUTIONS)
def test_the_solutions_in_the_notebooks_are_right(task, name, text):
    outcome = check(task, function(text, name))
    assert outcome.state == "right", str(outcome)


@pytest.mark.parametrize(("task", "name", "source"), [(t, n, s) for t, n, s, _ in ASKED])
def test_an_untouched_cell_is_not_right(task, name, source):
    outcome = check(task, function(source, name))
    expected = "wrong" if task == "06.mend_the_deadlock" else "open"
    assert outcome.state == expected


@pytest.mark.parametrize(("name", "truth"), BY_HAND.items())
def test_the_numbers_are_those_worked_out_by_hand(name, truth):
    assert check(name, truth)


def test_the_numbers_worked_out_by_hand_are_all_that_there_are():
    known = {**tasks("06"), **tasks("07")}
    assert set(BY_HAND) == {n for n, task in known.items() if not isinstance(task, ProgramTask)}


def test_a_deadlock_is_told_with_the_number_of_ranks_and_with_who_waits():
    (source,) = (s for task, _, s, _ in ASKED if task == "06.mend_the_deadlock")
    text = str(check("06.mend_the_deadlock", function(source, "my_all_gather")))
    assert text.startswith("Not yet. On 2 ranks: Deadlock: rank 0 waits in Send to rank 1")


def test_a_correct_program_that_takes_too_long_is_told_by_how_much():
    outcome = check("06.tree_broadcast", programs.naive_broadcast)
    assert outcome.state == "wrong"
    assert "It is correct. But on 8 ranks it takes 7 steps; 3 are enough" in str(outcome)


def test_a_broadcast_that_sends_to_who_has_it_already_is_told_so():
    def everywhere(comm, buffer):
        programs.broadcast(comm, buffer)
        other = comm.Get_rank() ^ 1
        if other < comm.Get_size():
            comm.Sendrecv(buffer.copy(), dest=other, recvbuf=buffer, source=other)

    assert "it sends 15 messages; 7 are enough" in str(check("06.tree_broadcast", everywhere))


def test_bytes_above_the_target_are_told_in_bytes():
    text = str(check("07.ring", programs.tree_all_reduce))
    assert "on 4 ranks the busiest rank sends 64 B; 48 B are enough." in text


def test_neither_the_ring_nor_doubling_meets_both_targets():
    ring = str(check("07.both_targets", programs.ring_all_reduce))
    assert "it takes 28.0 µs, modelled; the target is 20.0 µs." in ring
    assert "busiest" not in ring.partition("\n")[0]
    doubling = str(check("07.both_targets", programs.recursive_doubling_all_reduce))
    assert "the busiest rank sends 1.54 kB; the target is 896 B." in doubling


def test_a_contribution_that_is_missing_is_named():
    def one_step_short(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        if rank == 0:
            part = np.empty_like(buffer)
            for other in range(1, min(ranks, 3)):
                comm.Recv(part, source=other)
                buffer += part
        elif rank < 3:
            comm.Send(buffer, dest=0)
        programs.broadcast(comm, buffer)

    outcome = check("06.all_reduce_from_two", one_step_short)
    assert outcome.state == "wrong"
    assert outcome.run.ranks == 4
    assert "no all_reduce (sum) on 4 ranks" in str(outcome)
    assert "rank 0, all chunks (elements 0–3): rank 3's contribution is missing." in str(outcome)


def test_a_program_for_powers_of_two_is_caught_on_three_ranks():
    text = str(check("06.all_reduce_from_two", _doubling))
    assert "no all_reduce (sum) on 3 ranks" in text


def _doubling(comm, buffer):
    received, distance = np.empty_like(buffer), 1
    while distance < comm.Get_size():
        dest = (comm.Get_rank() + distance) % comm.Get_size()
        source = (comm.Get_rank() - distance) % comm.Get_size()
        comm.Sendrecv(buffer, dest=dest, recvbuf=received, source=source)
        buffer += received
        distance *= 2


def test_a_program_that_fails_alone_or_with_uneven_chunks_is_not_right():
    def never_alone(comm, buffer):
        if comm.Get_size() == 1:
            buffer[:] = 0
        programs.ring_all_reduce(comm, buffer)

    def even_chunks_only(comm, buffer):
        size = buffer.size // comm.Get_size() * comm.Get_size()
        programs.ring_all_reduce(comm, buffer[:size])

    assert "on 1 rank:" in str(check("07.ring", never_alone))
    text = str(check("07.ring", even_chunks_only))
    assert "on 4 ranks:" in text
    assert "Each rank had 9 elements." in text


def test_an_exception_in_a_program_is_told_with_the_rank():
    def breaks(comm, buffer):
        raise ZeroDivisionError("oh")

    text = str(check("07.ring", breaks))
    assert "On 4 ranks: Rank 0 raised ZeroDivisionError: oh" in text


@pytest.mark.parametrize("answer", [3, "programs.broadcast", None])
def test_what_is_no_function_is_told_so(answer):
    assert "is no function" in str(check("06.tree_broadcast", answer))


def test_no_answer_shows_the_question():
    outcome = check("07.ring", ...)
    assert (outcome.state, bool(outcome)) == ("open", False)
    assert tasks("07")["07.ring"].question in str(outcome)


@pytest.mark.parametrize(
    ("program", "shown"),
    [(programs.broadcast, 8), (_doubling, 2), (lambda comm, buffer: None, None)],
)
def test_a_notebook_shows_the_verdict_and_then_the_students_own_run(program, shown, monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda item, raw=False: seen.append(item))
    check("06.tree_broadcast", program)._ipython_display_()
    assert seen[0]["text/html"].startswith("<p><strong>")
    if shown:
        assert f"{shown} ranks" in repr(seen[1])
    assert len(seen) == (2 if shown else 1)


def test_a_program_that_binds_the_name_of_its_buffer_anew_is_told_to_write_into_it():
    def bound(comm, buffer):
        if comm.Get_rank() == 0:
            for other in range(1, comm.Get_size()):
                comm.Send(buffer, dest=other)
        else:
            received = np.empty_like(buffer)
            comm.Recv(received, source=0)
            buffer = received

    def returned(comm, buffer):
        bound(comm, buffer)
        return buffer

    assert "buffer[:] = x writes into the buffer" in str(check("06.tree_broadcast", bound))
    assert str(check("06.tree_broadcast", returned)).count("buffer[:] =") == 1


def test_an_answer_that_is_written_down_without_a_message_is_judged():
    def known_by_heart(comm, buffer):
        buffer[:] = np.arange(1.0, buffer.size + 1)

    outcome = check("06.tree_broadcast", known_by_heart)
    assert outcome.state == "wrong"
    assert "whatever the ranks put in" in str(outcome)


def test_a_wrong_ring_is_shown_on_four_ranks_like_the_pictures_of_the_lecture():
    assert check("07.ring", programs.reduce_scatter).run.ranks == 4


# The interrupt may come inside a destructor, where Python drops it; another follows a second later.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_messages_in_a_loop_that_does_not_end_are_told_with_their_line(monkeypatch):
    def never_doubled(comm, buffer):
        while True:
            other = 1 - comm.Get_rank()
            comm.Sendrecv(buffer, dest=other, recvbuf=buffer.copy(), source=other)

    monkeypatch.setattr("labkit.exercises.program_task.DEADLINE", 0.2)
    text = str(check("06.tree_broadcast", never_doubled))
    first = never_doubled.__code__.co_firstlineno
    assert re.search(rf"it was at line ({first + 2}|{first + 3})[.:]", text), text


def test_a_program_without_a_buffer_is_told_what_it_is_given():
    assert "Write def program(comm, buffer)" in str(check("06.tree_broadcast", lambda comm: None))
