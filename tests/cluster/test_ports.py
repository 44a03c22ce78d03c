"""Ports: free ones are found, taken ones survived, and the ranks' own kept for them."""

import socket
from pathlib import Path

import pytest

import labkit
from labkit.cluster import ports
from labkit.cluster.ports import choose, hold, is_free
from labkit.kinds import LabError


def test_chosen_ports_are_free_and_none_of_the_systems():
    found = choose(5)
    assert len(set(found)) == 5
    assert all(is_free(port) for port in found)
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(first <= port <= last for port in found)


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_passed_over(listening, host):
    free = choose(2)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, free[0]))
        if listening:
            other.listen()
        assert not is_free(free[0])
        taken = range(free[0], free[0] + 1)
        with pytest.raises(LabError, match="Only 0 of 1 ports"):
            choose(1, taken)


def test_a_held_port_is_kept_from_others_and_left_to_its_program():
    (port,) = choose(1)
    with hold(f"127.0.0.1:{port}") as holder:
        assert holder is not None
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        # As Python's own servers do, and as gRPC does.
        socket.create_server(("127.0.0.1", port)).close()
        socket.create_server(("127.0.0.1", port), reuse_port=True).close()


def test_a_port_that_went_meanwhile_is_no_crash():
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert hold(f"127.0.0.1:{other.getsockname()[1]}") is None


def test_ports_taken_between_two_runs_are_survived():
    def listens(rank):
        from labkit.cluster import this_rank

        host, _, port = this_rank().address.rpartition(":")
        with socket.create_server((host, int(port))):
            return int(port)

    with labkit.cluster(ranks=2, network="shared") as c:
        first = c.run(listens)
        with socket.create_server(("127.0.0.1", first[0])):
            second = c.run(listens)
        assert first[0] not in second
        assert c.addresses == tuple(f"127.0.0.1:{port}" for port in second)


def test_a_network_of_their_own_has_the_ports_that_others_took_here():
    def listens(rank):
        with socket.create_server(("127.0.0.1", ports.OWN + rank)):
            return True

    with labkit.cluster(ranks=2) as c:
        if "network of their own" not in repr(c):
            pytest.skip("this system gives no private networks")
        with socket.create_server(("127.0.0.1", ports.OWN), reuse_port=True):
            assert c.run(listens) == [True, True]
