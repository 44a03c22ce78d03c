"""Ports of this machine: which are free, and how a port is held for a program."""

import os
import socket
from itertools import islice

HOST = "127.0.0.1"
PORTS = range(20_001, 30_000)  # below those that systems give to outgoing connections


def free_ports(count: int) -> tuple[int, ...]:
    """Returns ports that are free on this machine now."""
    # Two sessions that choose at the same moment begin at different ports.
    turn = (os.getpid() * 37) % len(PORTS)
    return tuple(islice(filter(is_free, (*PORTS[turn:], *PORTS[:turn])), count))


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    # Not SO_REUSEADDR: what another program has only bound counts as taken.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    # A server on all addresses would let us bind where its own option allows it.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        caller.settimeout(0.2)
        return caller.connect_ex((HOST, port)) != 0


def hold_port(address: str) -> socket.socket | None:
    """Returns a socket that reserves the address for this user's programs, or None if it is taken.

    gRPC, torch and multiprocessing set one of the two options, so they can listen beside it.
    """
    host, _, port = address.rpartition(":")
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, int(port)))
    except OSError:
        holder.close()
        return None
    return holder
