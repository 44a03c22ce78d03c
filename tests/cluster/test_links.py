"""Hosts and links with a rate that the kernel enforces; what needs none of it comes first."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import labkit
from labkit.cluster.links.namespaces import private_network_refused
from labkit.cluster.links.network import Network
from labkit.cluster.links.traffic import Traffic
from labkit.collectives import programs
from labkit.kinds import LabError
from tests.cluster.leftovers import gone

SHARED = "the session shares the machine's" if os.environ.get("LABKIT_NETWORK") == "shared" else ""
NO_LINKS = SHARED or private_network_refused()
needs_links = pytest.mark.skipif(bool(NO_LINKS), reason=f"no links here: {NO_LINKS}")


def test_ranks_are_put_on_hosts_in_blocks_and_hosts_into_racks():
    network = Network.of(
        6, "200 Mbit/s", hosts=4, links={"host 3": "50 Mbit/s"}, racks=2, uplink="20 Mbit/s"
    )
    assert network.hosts == (0, 0, 1, 2, 2, 3)
    assert network.racks == (0, 0, 1, 1)
    assert [network.class_of(0, other) for other in (1, 2, 3)] == [
        "inside a host",
        "between hosts",
        "between racks",
    ]
    assert [8 * network.bandwidth(*pair) for pair in ((0, 2), (4, 5), (0, 3))] == [2e8, 5e7, 2e7]
    assert len(set(network.addresses)) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": 2},
        {"link": "200 MB/s"},
        {"link": "1 Gbit/s", "hosts": 5},
        {"link": "1 Gbit/s", "links": {"host 9": "1 Mbit/s"}},
    ],
)
def test_what_is_no_network_is_refused(wrong):
    with pytest.raises(LabError):
        labkit.cluster(ranks=4, **wrong)


def test_traffic_is_the_difference_of_the_counters_and_shows_the_use_of_each_link():
    network = Network.of(2, "8 Mbit/s")
    samples = [
        (5.0 + 0.1 * tick, {"host 0": (10 + 10_000 * tick, 7), "host 1": (0, 0)})
        for tick in range(11)
    ]
    traffic = Traffic.of(network, samples)
    assert traffic.bytes("host 0") == (100_000, 0)
    assert traffic.use("host 0") == (pytest.approx(0.1), 0)
    start = [(4.0, {"host 0": (0, 7), "host 1": (0, 0)})]  # a second in which ranks start
    assert Traffic.of(network, start + samples).use("host 0")[0] == pytest.approx(0.1, rel=1e-3)
    assert "10 %" in repr(traffic)
    assert "measured" in repr(traffic)


def test_without_links_the_same_cell_runs_and_says_so(capsys):
    def program(rank):
        return rank

    with labkit.cluster(ranks=2, network="shared", link="10 Mbit/s") as c:
        assert c.run(program) == [0, 1]
        assert "cannot be had" in capsys.readouterr().out
        assert "not counted" in repr(c.traffic())
        assert "modelled" in c.traffic().picture().alt
        with pytest.raises(LabError, match="cannot be had"):
            c.traffic().bytes("host 0")
        guess = labkit.calibrate(c).estimate("ring_all_reduce", nbytes=1e6)
    assert guess.kind.name == "modelled"
    assert guess.low < 8e6 / 0.9e7 < guess.high  # 2 (n - 1) / n of the bytes, sent at 90 %
    with labkit.cluster(4, network="shared", link="10 Mbit/s", racks=2, uplink="1 Mbit/s") as c:
        links = labkit.calibrate(c)
    assert 8 * links.bandwidth["between hosts"].value == 0.9e7
    assert 8 * links.bandwidth["between racks"].value == 0.9e6
    with pytest.raises(LabError, match="at one switch"):
        links.estimate("ring_all_reduce", nbytes=1e6)


def stream(rank: int, size: int) -> float:
    """All ranks but the last send to the last; seconds of the last."""
    comm = labkit.cluster.communicator()
    last, buffer = comm.Get_size() - 1, np.zeros(size, np.uint8)
    comm.Barrier()
    began = time.perf_counter()
    if rank == last:
        buffers = [np.empty_like(buffer) for _ in range(last)]
        for request in [comm.Irecv(buffers[source], source) for source in range(last)]:
            request.Wait()
    else:
        comm.Send(buffer, last)
    return time.perf_counter() - began


@needs_links
def test_a_rate_is_that_of_the_link_and_shared_by_all_that_use_it():
    """A lower bound alone: a busy machine may be slower, and no link is faster than its rate."""
    size = 250_000
    with labkit.cluster(ranks=3, link="20 Mbit/s") as c:
        seconds = max(c.run(stream, size))
        sent = [c.traffic().bytes(f"host {host}")[0] for host in range(2)]
        into = c.traffic().bytes("host 2")[1]
    assert seconds > 0.95 * 2 * size / 2.5e6
    assert all(size < one < 1.15 * size for one in sent)
    assert 2 * size < into < 1.15 * 2 * size


@needs_links
def test_ranks_of_one_host_do_not_use_its_link_and_find_their_place():
    def place(rank):
        names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GLOO_SOCKET_IFNAME")
        comm = labkit.cluster.communicator()
        buffer = np.full(100_000, rank, np.uint8)
        other = rank ^ 1
        taken = np.empty_like(buffer)
        comm.Sendrecv(buffer, other, recvbuf=taken, source=other)
        return [os.environ[name] for name in names], int(taken[0])

    with labkit.cluster(ranks=4, hosts=2, link="100 Mbit/s") as c:
        found = c.run(place)
        traffic = c.traffic()
    assert [one[0] for one in found] == [[str(r % 2), "2", "eth0"] for r in range(4)]
    assert [one[1] for one in found] == [1, 0, 3, 2]
    assert sum(traffic.bytes("host 0")) < 20_000


@needs_links
def test_a_collective_over_links_gives_the_sum_and_the_bytes_of_its_formula():
    size = 120_000

    def program(rank):
        buffer = np.arange(size // 4, dtype=np.float32) + rank
        programs.ring_all_reduce(labkit.cluster.communicator(), buffer)
        return buffer

    with labkit.cluster(ranks=3, link="200 Mbit/s") as c:
        results = c.run(program)
        sent = [c.traffic().bytes(f"host {host}")[0] for host in range(3)]
    expected = 3 * np.arange(size // 4) + 3
    assert all(np.array_equal(result, expected) for result in results)
    formula = 2 * 2 / 3 * size
    assert all(formula < one < 1.2 * formula for one in sent)


@needs_links
def test_what_was_calibrated_predicts_other_ranks_and_another_rate():
    with labkit.cluster(ranks=2, link="100 Mbit/s") as c:
        links = labkit.calibrate(c)
    predicted = links.estimate("ring_all_reduce", 300_000, ranks=3, link="50 Mbit/s")
    assert predicted.low > 2 * 2 / 3 * 300_000 / (50e6 / 8)  # no link is faster than its rate


@needs_links
def test_an_uplink_carries_what_leaves_a_rack():
    with labkit.cluster(ranks=4, link="100 Mbit/s", racks=2, uplink="20 Mbit/s") as c:
        c.run(stream, 100_000)
        traffic = c.traffic()
    assert 200_000 < traffic.bytes("rack 0")[0] < 240_000
    assert 200_000 < traffic.bytes("rack 1")[1] < 240_000
    assert traffic.bytes("rack 1")[0] < 20_000


@needs_links
def test_links_between_the_hosts_of_a_rack_are_calibrated_without_the_uplink():
    with labkit.cluster(ranks=4, link="100 Mbit/s", racks=2, uplink="2 Mbit/s") as c:
        found = labkit.calibrate(c).bandwidth
    assert set(found) == {"between hosts", "between racks"}
    assert 8 * found["between hosts"].low > 2e6


# Imported by the fork server when it starts.
REFUSED = """
from labkit.cluster.links.namespaces import Switch

Switch.move_into = lambda self, host, move=Switch.move_into: 1 // (host != 1) and move(self, host)
"""


@needs_links
def test_a_rank_that_cannot_enter_its_host_ends_no_other(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(REFUSED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with labkit.cluster(ranks=3, link="100 Mbit/s") as c:
        outcome = c.start(number, show=False).finish()
        assert "ZeroDivisionError" in outcome.errors[1].text
        assert outcome.errors[0].what == outcome.errors[2].what == "stopped"
        assert list(tmp_path.glob("labkit-ranks-*"))


@needs_links
def test_a_cluster_without_links_after_one_with_them_has_the_private_loopback():
    def host(rank):
        with socket.create_server(("127.0.0.1", 0)) as server:
            return server.getsockname()[0], os.environ["NCCL_SOCKET_IFNAME"]

    with labkit.cluster(ranks=2, link="100 Mbit/s", keep_warm=True) as c:
        assert c.run(host) == [("127.0.0.1", "eth0")] * 2
    with labkit.cluster(ranks=2) as c:
        assert c.run(host) == [("127.0.0.1", "lo")] * 2
    labkit.cluster.shutdown()


def number(rank):
    return rank


@needs_links
def test_traffic_is_that_of_the_last_run_of_its_cluster():
    """A warm fork server counted for other hosts before; what is counted outlives the block."""
    with labkit.cluster(ranks=3, link="100 Mbit/s", keep_warm=True) as c:
        c.run(number)
    assert set(c.traffic().sent) == {"host 0", "host 1", "host 2"}
    with (
        labkit.cluster(ranks=2, link="100 Mbit/s") as c,
        pytest.raises(LabError, match="Nothing is counted yet"),
    ):
        c.traffic()
    labkit.cluster.shutdown()


@needs_links
def test_a_panel_takes_the_samples_of_all_runs_of_its_block_and_can_be_replayed(tmp_path, capsys):
    with labkit.cluster(ranks=2, link="20 Mbit/s") as c:
        panel = c.panel()
        for _ in range(2):
            c.run(stream, 250_000)
    assert "Panel of 2 hosts" in capsys.readouterr().out
    traffic = panel.traffic
    assert 500_000 < traffic.bytes("host 0")[0] < 575_000
    assert len(traffic.times) >= 3  # 0.2 s of data in all
    again = labkit.cluster.replay(traffic.save(tmp_path / "links.json"))
    assert "recorded on this machine" in again.alt
    assert "host 0 sent 5" in again.alt
    assert "labkit-traffic" in again.html()
    with pytest.raises(LabError, match="while their block is open"):
        c.panel()


@needs_links
def test_an_interrupt_while_hosts_are_made_leaves_no_hosts_to_the_next_block(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with labkit.cluster(ranks=2, keep_warm=True) as c, monkeypatch.context() as patch:
        patch.setattr("labkit.cluster.here.fork_client.ForkServer.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            c.engine.make_links(Network.of(2, "100 Mbit/s"))
    with labkit.cluster(ranks=3) as c:
        names = c.run(lambda _rank: Path("/proc/self/net/dev").read_text(encoding="ascii"))
    assert not any("eth0" in text for text in names)


@needs_links
def test_hosts_know_one_another_so_that_many_leave_the_machine_its_table_of_neighbours():
    """It has 1,024 places for all networks together: 33 hosts that ask would need 1,056."""
    with labkit.cluster(ranks=4, link="10 Gbit/s") as c:
        known = c.run(lambda _rank: Path("/proc/net/arp").read_text(encoding="ascii"), show=False)
    assert all(text.count("0x6") == 3 for text in known)  # complete and permanent


@needs_links
def test_tcp_hands_over_a_packet_at_a_time_to_a_slow_link():
    """A short message behind 64 KiB would wait for half a second at 1 Mbit/s."""

    def largest(_rank):
        link = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex("eth0"), 0, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
            kernel.send(struct.pack("=IHHII", 32, 18, 1, 1, 0) + link)  # RTM_GETLINK
            answer = kernel.recv(1 << 16)
        return struct.unpack_from("I", answer, answer.index(b"\x08\0\x28\0") + 4)[0]  # GSO_MAX_SEGS

    with labkit.cluster(ranks=2, link="1 Mbit/s") as c:
        assert c.run(largest) == [1, 1]


KILLED_AT_RANDOM = """
import os, random, signal, sys, time, labkit
from contextlib import suppress

chance = random.Random(int(sys.argv[1]))

def wait(rank):
    print("at", os.readlink("/proc/self/ns/net"), os.getppid(), flush=True)
    comm = labkit.cluster.communicator()
    while True:
        comm.Barrier()

for last in [False] * 4 + [True]:
    with suppress(labkit.LabError), labkit.cluster(3, link="100 Mbit/s", keep_warm=True) as c:
        run = c.start(wait, show=False)
        at = [run.wait_for("at", rank).text.split() for rank in range(3)]
        print(*(words[1] for words in at), flush=True)
        time.sleep(chance.uniform(0, 0.1))
        if not last:
            run.kill(chance.randrange(3))
        else:
            victim = chance.choice([os.getpid(), int(at[0][2])])
            os.kill(victim, chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        run.finish(1)  # a fork server outlives an interrupt, as a kernel does
"""


@needs_links
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [2, pytest.param(40, marks=pytest.mark.stress)])
def test_runs_with_random_kills_of_rank_server_or_kernel_leave_nothing(times, tmp_path):
    """Namespaces live by files of the fork server alone: with it, they are gone."""
    program, folder = tmp_path / "program.py", tmp_path / "temporary"
    folder.mkdir()
    program.write_text(KILLED_AT_RANDOM, encoding="utf-8")
    for seed in range(times):
        done = subprocess.run(
            [sys.executable, program, str(seed)], capture_output=True, text=True, timeout=300,
            check=False, env={**os.environ, "TMPDIR": str(folder)},
        )  # fmt: skip
        assert len({*done.stdout.split()}) >= 3, done.stderr  # hosts
        assert gone(str(folder))  # it is named in what fork servers and ranks are started with
        assert not list(folder.iterdir())
