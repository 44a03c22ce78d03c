"""Programs are judged by what was measured over links: bytes that the kernel counted, seconds."""

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import tasks
from labkit.exercises.judges import over_links as judges
from labkit.exercises.judges.over_links import LinkMeasurement, over_links, ratio
from labkit.exercises.task import NotJudged
from labkit.kinds import measured
from labkit.timing.estimate import Estimate
from tests.cluster.test_links import needs_links
from tests.exercises.cells import own, refused, value


def _send_once(comm, buffer):
    if comm.Get_rank() == 0:
        comm.Send(buffer, dest=1)
    else:
        comm.Recv(buffer, source=0)


def _send_twice(comm, buffer):
    _send_once(comm, buffer)
    _send_once(comm, buffer)
    return comm.Get_rank()


@needs_links
def test_results_seconds_by_round_and_traffic_are_measured_of_each_program():
    arrays = [np.full(50_000, float(rank)) for rank in (3, 4)]
    found = over_links({"one": _send_once, "two": _send_twice}, arrays, rounds=2, link="1 Gbit/s")
    assert [list(set(result)) for result in found["one"].results] == [[3.0], [3.0]]
    assert found["two"].results == [0, 1]
    assert [len(one.seconds) for one in found.values()] == [2, 2]
    once, twice = (one.traffic.bytes("host 0")[0] for one in found.values())
    assert 1.0 < once / 400_000 < 1.2
    assert 1.9 < twice / once < 2.1


def test_without_links_it_is_not_judged(capsys):
    with pytest.raises(NotJudged):
        over_links({"one": _send_once}, [1, 2], link="1 Gbit/s", network="shared")


def test_a_ratio_is_that_of_the_seconds_of_the_same_round():
    kind = measured("a test")
    traffic = judges.Traffic(None, (), {}, {}, kind)
    slow, fast = (
        LinkMeasurement([], traffic, list(s)) for s in ([2.0, 3.0, 40.0], [1.0, 1.0, 10.0])
    )
    found = ratio(slow, fast)
    assert (found.low, found.high) == (2.0, 4.0)


def _one_direction_at_a_time(comm, buffer):
    """The sum of a rack goes to the other, and the sum of both comes back."""
    rank = comm.Get_rank()
    node = comm.Split(rank // 2, rank)
    own.reduce(node, buffer)
    if rank == 2:
        comm.Send(buffer, dest=0)
        comm.Recv(buffer, source=0)
    elif rank == 0:
        received = np.empty_like(buffer)
        comm.Recv(received, source=2)
        buffer += received
        comm.Send(buffer, dest=2)
    own.broadcast(node, buffer)


def _by_the_first_of_each_rack(comm, buffer):
    rank = comm.Get_rank()
    node, firsts = comm.Split(rank // 2, rank), comm.Split(rank % 2, rank)
    programs.reduce(node, buffer)
    if rank % 2 == 0:
        own.recursive_doubling_all_reduce(firsts, buffer)
    programs.broadcast(node, buffer)


def _half_as_precise_if_long(comm, buffer):
    chosen = buffer.astype(np.float32) if buffer.size > 1000 else buffer
    own.ring_all_reduce(comm, chosen)
    buffer[:] = chosen


def _one_after_the_other(comm, buffer):
    """A ring in which rank r sends when it has received."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    for step in range(2 * (ranks - 1)):
        out, into = chunks[(rank - step) % ranks], chunks[(rank - 1 - step) % ranks]
        received = np.empty_like(into)
        for sender in range(ranks):
            if sender == rank:
                comm.Send(out, dest=(rank + 1) % ranks)
            elif (sender + 1) % ranks == rank:
                comm.Recv(received, source=sender)
        into[:] = received + (into if step < ranks - 1 else 0)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(judges, "ELEMENTS", 60_001)
    monkeypatch.setattr(judges, "ROUNDS", 1)


@pytest.mark.parametrize(
    ("task", "answer", "told"),
    [
        ("22.over_links", own.naive_all_reduce, ["link of host 0 carried", "distribute"]),
        ("22.over_links", own.recursive_doubling_all_reduce, ["2.1", "Send chunks"]),
        ("22.over_links", _half_as_precise_if_long, ["does not hold the sum"]),
        ("23.two_levels", own.ring_all_reduce, ["link of rack", "1.6", "inside each rack first"]),
        ("23.two_levels", programs.hierarchical_all_reduce, ["hierarchical_all_reduce made it"]),
    ],
)  # fmt: skip
def test_what_a_link_carries_in_vain_is_told_with_its_name(task, answer, told):
    refused(task, answer, *told)


@pytest.mark.parametrize(
    ("task", "answer", "told"),
    [
        ("22.over_links", _one_after_the_other, "Sendrecv"),
        ("23.two_levels", _one_direction_at_a_time, "both directions"),
    ],
)
def test_links_that_are_used_one_after_the_other_are_told_by_the_time(task, answer, told):
    for attempt in range(4):
        try:
            outcome = refused(task, answer, "measured", told)
            break
        except AssertionError:  # a stall in a round: undecided, the judge refuses nothing
            if attempt == 3:
                raise
    assert outcome.trace is not None


@needs_links
def test_seconds_that_an_answers_own_process_reports_are_not_believed(monkeypatch):
    forged = Estimate(9.0, 8.0, 9.5, "×", 0.9, measured("whatever"))
    monkeypatch.setattr(judges, "ratio", lambda *_: forged)
    there = lambda observe, *args: observe(_one_after_the_other, *args)  # noqa: E731
    monkeypatch.setattr(_one_after_the_other, "_beside", there, raising=False)
    refused("22.over_links", _one_after_the_other, "Sendrecv")


@needs_links
@pytest.mark.parametrize(
    ("task", "answer", "busy"),
    [
        ("22.over_links", value(tasks()["22.ring"].solution.strip() + "\n"), False),
        ("23.two_levels", _by_the_first_of_each_rack, True),
    ],
)
def test_right_answers_in_another_style_are_right(task, answer, busy, capsys, monkeypatch):
    if busy:  # so that the measured ratio says nothing
        nothing = Estimate(0.9, 0.8, 0.95, "×", 0.9, measured("a busy machine"))
        monkeypatch.setattr(judges, "ratio", lambda *_: nothing)
    assert tasks()[task].check(answer)
    assert "measured" in capsys.readouterr().out
