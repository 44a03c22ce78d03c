"""Links with a rate: what they let through, and collectives over them beside the α-β model.

Each row is a ratio of measured to asked, or of measured to modelled by the calibrated values: 1 is
exact. Further rows: how much longer a block with links takes to open (allowed over ours), and how
many predictions for other ranks, rates and sizes lie in their interval (over the 85 % wanted).
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
from harness import Row, main

import labkit
from labkit.cluster.links.network import bits
from labkit.collectives import programs

SEED = 7
RATES = ("10 Mbit/s", "100 Mbit/s", "1 Gbit/s")
OPENING = 0.2  # seconds more, with links
WANTED = 0.85
NAMES = ("ring_all_reduce", "naive_all_reduce", "tree_all_reduce", "recursive_doubling_all_reduce")


def stream(rank: int, size: int, rounds: int) -> list[float]:
    """A plain socket from each other host to the last: seconds in which the last has it all."""
    import json
    import os
    import socket

    addresses = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    host, port = addresses[-1].split(":")
    comm, last, found = labkit.cluster.communicator(), len(addresses) - 1, []
    if rank == last:
        with socket.create_server((host, int(port))) as server:
            comm.Barrier()
            clients = [server.accept()[0] for _ in range(last)]
        for _ in range(rounds):
            comm.Barrier()
            began, left = time.perf_counter(), [size] * last
            for client in clients:
                client.settimeout(0.001)
            while any(left):
                for at, client in enumerate(clients):
                    if left[at]:
                        try:
                            left[at] -= len(client.recv(min(left[at], 1 << 18)))
                        except TimeoutError:
                            continue
            found.append(time.perf_counter() - began)
    else:
        comm.Barrier()
        with socket.create_connection((host, int(port))) as client:
            for _ in range(rounds):
                comm.Barrier()
                client.sendall(bytes(size))
    return found


def reduce(rank: int, name: str, elements: int, rounds: int) -> list[float]:
    """Seconds of an all-reduce on one rank, in each round."""
    comm, found = labkit.cluster.communicator(), []
    for _ in range(rounds):
        buffer = np.full(elements, rank, np.float32)
        comm.Barrier()
        began = time.perf_counter()
        getattr(programs, name)(comm, buffer)
        found.append(time.perf_counter() - began)
    return found


def slowest(results: Sequence[Sequence[float]]) -> list[float]:
    """By round, of the rank that took longest."""
    return [max(each) for each in zip(*results, strict=True)]


def row(what: str, against: str, ratios: Sequence[float]) -> Row:
    return Row(what, against, statistics.median(ratios), min(ratios), max(ratios))


def rates(quick: bool) -> list[Row]:
    found, rounds = [], 3 if quick else 9
    for link in RATES:
        size = int(bits(link) / 8 * 0.5)
        with labkit.cluster(ranks=2, link=link) as c:
            took = c.run(stream, size, rounds, show=False)[-1]
        found.append(
            row(f"one stream over {link}", "rate", [size / s * 8 / bits(link) for s in took])
        )
    size = int(bits(RATES[1]) / 8 * 0.2)
    with labkit.cluster(ranks=5, link=RATES[1]) as c:
        took = c.run(stream, size, rounds, show=False)[-1]
    shares = [4 * size / s * 8 / bits(RATES[1]) for s in took]
    return [*found, row(f"four streams into one host, {RATES[1]}", "rate", shares)]


def collectives(quick: bool) -> list[Row]:
    found, link, rounds = [], "100 Mbit/s", 3 if quick else 7
    medians = {}
    for ranks in (4, 8):
        with labkit.cluster(ranks=ranks, link=link) as c:
            links = labkit.calibrate(c)
            for name in NAMES[:2]:
                for megabytes in (4,) if quick or ranks == 8 or name != NAMES[0] else (4, 32):
                    elements = megabytes * 250_000 // ranks * ranks
                    took = slowest(c.run(reduce, name, elements, rounds, show=False))
                    medians[name, ranks, megabytes] = statistics.median(took)
                    model = links.estimate(name, 4.0 * elements).value
                    what = f"{name}, {ranks} hosts, {megabytes} MB"
                    found.append(row(what, "calibrated model", [s / model for s in took]))
    for ranks, wanted in ((4, 1.8), (8, 3.5)):
        ratio = medians[NAMES[1], ranks, 4] / medians[NAMES[0], ranks, 4]
        found.append(row(f"naive over ring, {ranks} hosts", f"{wanted} wanted", [ratio / wanted]))
    two_levels = {"link": link, "racks": 2, "uplink": "20 Mbit/s"}
    names, ratios = (NAMES[0], "hierarchical_all_reduce"), []
    with labkit.cluster(ranks=4, **two_levels) as c:
        for _ in range(rounds):
            flat, two = (slowest(c.run(reduce, one, 500_000, 1, show=False))[0] for one in names)
            ratios.append(flat / two)
    return [*found, row("flat ring, uplink 5 times slower, 4 hosts", "two levels", ratios)]


def predictions(quick: bool) -> list[Row]:
    with labkit.cluster(ranks=2, link="100 Mbit/s") as c:
        links = labkit.calibrate(c)
    chance, hits = random.Random(SEED), []
    cases = 2 if quick else 9
    for ranks in range(2, 9, 3 if quick else 1):
        for link in ("50 Mbit/s", "100 Mbit/s", "300 Mbit/s"):
            with labkit.cluster(ranks=ranks, link=link) as c:
                for _ in range(cases):
                    name, nbytes = chance.choice(NAMES), 10 ** chance.uniform(5, 7.5)
                    elements = int(nbytes / 4) // ranks * ranks
                    guess = links.estimate(name, 4.0 * elements, ranks, link)
                    if guess.value < (1 if quick else 6):
                        took = slowest(c.run(reduce, name, elements, 1, show=False))[0]
                        hits.append(guess.low <= took <= guess.high)
    share = sum(hits) / len(hits)
    what = f"{sum(hits)} of {len(hits)} predictions in their 90 % interval"
    return [row(what, f"{WANTED:.0%} wanted", [share / WANTED])]


def opening(quick: bool) -> list[Row]:
    more = []
    for _ in range(5 if quick else 20):
        took = []
        for link in (None, "100 Mbit/s"):
            began = time.perf_counter()
            with labkit.cluster(ranks=4, link=link, keep_warm=True) as c:
                c.run(abs, show=False)
                took.append(time.perf_counter() - began)
        more.append(max(took[1] - took[0], 1e-3))
    labkit.cluster.shutdown()
    return [row("first run of a block with links", "0.2 s more", [OPENING / one for one in more])]


def results(quick: bool) -> list[Row]:
    return [*rates(quick), *collectives(quick), *predictions(quick), *opening(quick)]


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
