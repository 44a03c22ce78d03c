"""A private network or an explicit choice; ports that are free, and kept for their rank."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import labkit
from labkit.cluster.links.namespaces import private_network_refused
from labkit.cluster.ranks.ports import PORTS, free_ports, hold_port, is_free
from labkit.kinds import LabError

needs_private_network = pytest.mark.skipif(
    bool(why := private_network_refused()), reason=f"no private network: {why}"
)
LIMITED = "for n in user net; do echo 0 > /proc/sys/user/max_${n}_namespaces; done; exec "


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare command")
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
    # A user namespace whose limit of further namespaces is 0.
    command = ["unshare", "-Ur", "sh", "-c", f'{LIMITED}"$0" -c "$1"', sys.executable, program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "unshare" in answer.stderr:
        pytest.skip(f"no user namespace can be made: {answer.stderr}")
    first, second, third, *_ = answer.stdout.splitlines()
    assert first.startswith("refused:")
    assert "device" not in first  # "No space left on device" is what the error number says
    assert "network='shared'" in first
    assert (second, third[:7]) == ("ran [0]", "ran [0]")


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


@pytest.mark.parametrize(("host", "listening"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_taken_port_is_not_free(listening, host):
    port, *others = free_ports(5)
    assert len({port, *others}) == 5
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, port))
        if listening:
            other.listen()
        assert not is_free(port)
        assert port not in free_ports(5)


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


def test_the_process_that_enters_a_private_network_has_one_thread():
    """The kernel refuses a user namespace to a process with more, such as those of NumPy's BLAS."""
    heavy = "import sys, labkit.cluster.here.fork_server; print({'numpy'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", heavy], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
