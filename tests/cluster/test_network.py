"""A private network or an explicit choice; ports that are free, and kept for their rank."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import labkit
from labkit.cluster.network import (
    PORTS,
    free_ports,
    hold_port,
    is_free,
    private_network_refused,
)
from labkit.kinds import LabError

needs_private_network = pytest.mark.skipif(
    bool(why := private_network_refused()), reason=f"no private network: {why}"
)
LIMITED = "for n in user net; do echo 0 > /proc/sys/user/max_${n}_namespaces; done; exec "


def where_namespaces_are_used_up(program):
    """What a program prints in a user namespace whose limit of further namespaces is 0."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare command")
    command = ["unshare", "-Ur", "sh", "-c", f'{LIMITED}"$0" -c "$1"', sys.executable, program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if answer.returncode != 0 and "unshare" in answer.stderr:
        pytest.skip(f"no user namespace can be made: {answer.stderr}")
    return answer.stdout + answer.stderr


def test_a_refusal_has_the_right_reason():
    program = "from labkit.cluster.network import private_network_refused as why; print(why())"
    found = where_namespaces_are_used_up(program)
    assert "the number of namespaces is limited" in found
    assert "device" not in found  # "No space left on device" is what the error number says


def test_where_a_private_network_is_refused_nothing_starts_without_your_word():
    program = """
import labkit, os
os.environ.pop("LABKIT_NETWORK", None)
for network in ({}, {"network": "shared"}):
    try:
        with labkit.cluster(ranks=1, **network) as c:
            print("ran", c.run(abs))
    except labkit.LabError as fault:
        print("refused:", fault)
os.environ["LABKIT_NETWORK"] = "shared"
with labkit.cluster(ranks=1) as c:
    print("ran", c.run(abs), c)
"""
    first, second, third, *_ = where_namespaces_are_used_up(program).splitlines()
    assert first.startswith("refused:")
    assert "number of namespaces is limited" in first
    assert "network='shared'" in first
    assert "accept everybody who can reach them" in first
    assert second == "ran [0]"
    assert third.startswith("ran [0]")
    assert "shared network" in third


@needs_private_network
def test_a_private_network_has_a_loopback_and_ports_that_others_have_taken_here():
    def listens(rank):
        devices = Path("/proc/net/dev").read_text().splitlines()[2:]
        with socket.create_server(("127.0.0.1", PORTS[rank])):
            return [line.split(":")[0].strip() for line in devices]

    private = labkit.cluster(ranks=2, network="own")
    with private as c, socket.create_server(("", PORTS[0]), reuse_port=True):
        assert c.run(listens) == [["lo"], ["lo"]]
        assert "private network" in repr(c)


@needs_private_network
def test_a_download_in_a_private_network_is_told_how_to_reach_the_internet():
    def downloads(rank):
        import urllib.request

        urllib.request.urlopen("http://93.184.216.34/", timeout=5)

    private = labkit.cluster(ranks=1, network="own")
    with private as c, pytest.raises(LabError, match="network='shared'"):
        c.run(downloads)


def test_free_ports_are_free_and_not_those_of_outgoing_connections():
    found = free_ports(5)
    assert len(set(found)) == 5
    assert all(is_free(port) for port in found)
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(first <= port <= last for port in found)


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_not_free(listening, host):
    (port,) = free_ports(1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, port))
        if listening:
            other.listen()
        assert not is_free(port)
        with pytest.raises(LabError, match="Only 0 of 1 ports"):
            free_ports(1, range(port, port + 1))


def test_a_held_port_is_kept_from_others_and_left_to_its_program():
    (port,) = free_ports(1)
    with hold_port(f"127.0.0.1:{port}"):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        # As Python's own servers do, and as gRPC does.
        socket.create_server(("127.0.0.1", port)).close()
        socket.create_server(("127.0.0.1", port), reuse_port=True).close()
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert hold_port(f"127.0.0.1:{other.getsockname()[1]}") is None


def test_ports_that_are_taken_between_two_runs_are_replaced():
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
