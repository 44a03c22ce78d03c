"""Ports for the ranks: chosen where nobody is given one by chance, and held until they are used."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from labkit.kinds import LabError

__all__ = ["OWN", "SHARED", "choose", "hold", "is_free"]

HOST = "127.0.0.1"
OWN = 20_001
"""In a network of their own, the ranks' ports begin here: nobody else is there."""
SHARED = range(20_001, 30_000)
"""On this machine's loopback they lie here, if the system gives out none of these by chance."""


def choose(count: int, taken: range = SHARED) -> tuple[int, ...]:
    """So many ports that are free on this machine now.

    The system gives each outgoing connection a port of its own range; ours stay out of it.
    """
    found: list[int] = []
    for port in _below_the_systems(taken):
        if len(found) == count:
            return tuple(found)
        if is_free(port):
            found.append(port)
    raise LabError(
        f"Only {len(found)} of {count} ports from {taken.start} to {taken.stop} are free on this "
        "machine. End programs that you do not need, or leave out network='shared'."
    )


def is_free(port: int, host: str = HOST) -> bool:
    """Whether somebody could listen there."""
    # Not SO_REUSEADDR: what another program has only bound shall count as taken.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    # A server on all addresses would let us bind where its own option allows it.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
        asked.settimeout(0.2)
        return asked.connect_ex((host, port)) != 0


def hold(address: str) -> socket.socket | None:
    """A socket that keeps others off the address, and lets this user's program listen beside it.

    gRPC, torch and multiprocessing set one of the two options; None where the port went meanwhile.
    """
    host, _, port = address.rpartition(":")
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, int(port)))
    except OSError:
        holder.close()
        return None
    return holder


def _below_the_systems(asked: range) -> Iterator[int]:
    try:
        words = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        first, last = int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):
        first, last = 32_768, 60_999
    outside = [port for port in asked if not first <= port <= last]
    # Two kernels that choose at the same moment shall rarely look at the same port first.
    import os

    turn = (os.getpid() * 37) % max(1, len(outside))
    yield from (*outside[turn:], *outside[:turn], *(p for p in asked if first <= p <= last))
