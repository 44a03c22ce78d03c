"""When messages start and end: ports, links, local work, barriers, stragglers."""

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import programs, topology
from labkit.collectives.clock import timed
from labkit.kinds import LabError

# A message of 10 bytes takes 1 + 10 / 10 = 2 seconds.
LINK = {"latency": 1.0, "bandwidth": 10.0}


def ran(program, ranks, elements=10, **options):
    inputs = [np.zeros(elements, np.uint8) for _ in range(ranks)]
    return collectives.run(program, inputs=inputs, **options)


def to_one(comm, buffer):
    """All others send to rank 0 at once; it receives in order."""
    if comm.rank:
        comm.Send(buffer, dest=0)
    else:
        for source in range(1, comm.size):
            comm.Recv(buffer, source=source)


def into_one(comm, buffer):
    """Rank 0 is ready for everything at once."""
    if comm.rank:
        comm.Send(buffer, dest=0)
    else:
        arrived = [np.empty_like(buffer) for _ in range(1, comm.size)]
        for request in [comm.Irecv(one, source=i + 1) for i, one in enumerate(arrived)]:
            request.Wait()


@pytest.mark.parametrize("program", [to_one, into_one])
def test_a_port_takes_one_message_at_a_time(program):
    found = timed(ran(program, 4), **LINK)
    assert (found.starts, found.ends) == ((0, 2, 4), (2, 4, 6))


def test_a_straggler_is_late_or_slow():
    links = topology.fully_connected(2, **LINK)
    trace = ran(programs.reduce, 2)
    late = topology.straggler(links, 1, late=5.0)
    assert timed(trace, topology=late).finished == (7, 7)
    for rank in (0, 1):  # the messages at both of its sides
        slow = topology.straggler(links, rank, factor=3)
        assert timed(trace, topology=slow).finished == (6, 6)
    in_turn = topology.late_starts(topology.fully_connected(4, **LINK), [0.0, 1.0, 0.5, 0.0])
    assert timed(ran(into_one, 4), topology=in_turn).finished == (6, 6, 4, 2)


@pytest.mark.parametrize(
    ("links", "keyword"),
    [
        ({"latency": 1e-6}, "A cost needs links"),
        ({"latency": 1, "topology": topology.ring(4, 1, 1)}, "topology= alone"),
        ({"topology": topology.ring(5, 1, 1)}, "has 5 ranks and the program 4"),
    ],
)
def test_a_mistake_is_one_sentence(links, keyword):
    with pytest.raises(LabError, match=keyword):
        timed(ran(to_one, 4), **links)
