"""Runs that end although the program does not want them to, or is somewhere else."""

import threading

import numpy as np
import pytest

from labkit.collectives import patience, run, simulator
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def said(program, **options):
    with pytest.raises(LabError) as caught:
        run(program, PAIR, **options)
    return str(caught.value)


def test_a_program_that_swallows_everything_ends_all_the_same():
    def program(comm, buffer):
        while True:
            try:
                comm.Recv(buffer, 1 - comm.rank)
            except:  # noqa: E722
                buffer += 1

    assert said(program).startswith("Deadlock: rank 0 waits in Recv from rank 1")


def test_a_program_that_calls_on_after_its_fault_ends():
    def program(comm, buffer):
        while True:
            try:
                comm.Send(buffer, 7)
            except:  # noqa: E722
                buffer += 1

    assert "names rank 7" in said(program)


def test_a_loop_that_swallows_the_deadline_is_told_again(monkeypatch):
    monkeypatch.setattr(patience, "AGAIN", 0.05)

    def program(comm, buffer):
        try:
            while True:
                buffer += 1
        except BaseException:  # noqa: BLE001
            while True:
                buffer += 1

    assert "had not ended after 0.1 s" in said(program, deadline=0.1)


def test_a_clean_up_that_calls_does_not_hide_the_deadlock():
    def program(comm, buffer):
        try:
            comm.Recv(buffer, 1 - comm.rank)
        finally:
            comm.Barrier()

    assert said(program).startswith("Deadlock: rank 0 waits in Recv from rank 1")


def test_a_clean_up_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(simulator, "CLEAN_UP", 0.2)

    def program(comm, buffer):
        try:
            comm.Recv(buffer, 1 - comm.rank)
        finally:
            while comm.rank == 0:
                buffer += 1

    assert said(program).startswith("Deadlock:")


def test_a_call_from_a_thread_is_told():
    def program(comm, buffer):
        thread = threading.Thread(target=quiet, args=(comm.Send, buffer, 1 - comm.rank))
        thread.start()
        thread.join()

    def quiet(call, *arguments):
        with pytest.raises(LabError):
            call(*arguments)

    assert said(program).startswith("Rank 0's Send was called from a thread, or by another rank.")


def test_a_call_with_the_communicator_of_another_rank_is_told():
    shared = []

    def program(comm, buffer):
        shared.append(comm)
        shared[0].Isend(buffer, 1)

    assert said(program).startswith("Rank 0's Isend was called from a thread, or by another rank.")


def test_requests_that_are_given_to_mpi4py_are_sent_back():
    mpi = pytest.importorskip("mpi4py.MPI")

    def program(comm, buffer):
        requests = [comm.Irecv(np.empty(2), 1 - comm.rank), comm.Isend(buffer, 1 - comm.rank)]
        mpi.Request.Waitall(requests)

    assert said(program).endswith("Request.Waitall waits here and under MPI.")
