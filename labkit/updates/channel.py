"""Connections between the workers and the server: loopback, and nobody without the run's key.

The server listens at the address that the cluster gave to its rank. The cluster may hold that
port for it with a socket that shares it, so this one shares it too.
"""

from __future__ import annotations

import socket
import struct
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from labkit.kinds import LabError

__all__ = ["connect", "listen", "meet"]

PATIENCE = 10.0  # seconds for whoever is connected to show that it has the key


def listen(address: str) -> socket.socket:
    """A socket at which workers may call."""
    host, _, port = address.rpartition(":")
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind((host, int(port)))
    server.listen(128)
    return server


def meet(server: socket.socket, key: bytes) -> Any:
    """The next caller, or None if it does not have the key."""
    caller, _ = server.accept()
    return _proven(caller, key, server_side=True)


def connect(address: str, key: bytes, deadline: float) -> Any:
    """A connection to the server, which may not be listening yet; `deadline` in seconds."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + deadline
    while True:
        try:
            made = socket.create_connection((host, int(port)), timeout=PATIENCE)
        except OSError as fault:
            if time.monotonic() > until:
                raise LabError(
                    f"The server at {address} could not be reached within {deadline:.0f} s "
                    f"({fault}). Look at what rank 0 says."
                ) from fault
            time.sleep(0.01)  # nothing tells when a port begins to be listened at
            continue
        found = _proven(made, key, server_side=False)
        if found is None:
            raise LabError(f"What answers at {address} is not this run's server. Run it again.")
        return found


def _proven(made: socket.socket, key: bytes, *, server_side: bool) -> Any:
    made.settimeout(None)
    # A request and its answer take turns: held back for company, each would cost 40 ms.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _patience(made, PATIENCE)
    connection = Connection(made.detach())
    try:
        if server_side:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
        else:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
    except (OSError, EOFError, AssertionError, AuthenticationError):
        connection.close()
        return None
    with socket.socket(fileno=connection.fileno()) as same:
        _patience(same, 0.0)
        same.detach()
    return connection


def _patience(made: socket.socket, seconds: float) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), 0))
