"""Asks the network what a TF_CONFIG cannot say: do the others' machines answer, is my port free."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Mapping

from labkit.kinds import LabError, seconds_text

__all__ = ["ask_all", "split_address"]

# The machine is there, and nothing listens yet: the other task may just not have started.
_ANSWERS = {0, errno.ECONNREFUSED}


def split_address(address: str) -> tuple[str, int]:
    """Host and port; an address of IPv6 stands in brackets.

    >>> split_address("[::1]:23450"), split_address("node1:23450")
    (('::1', 23450), ('node1', 23450))
    """
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def ask_all(task: str, address: str, others: Mapping[str, str], deadline: float) -> None:
    """Raise the first thing that would keep this task from meeting the others."""
    if address:
        _own_port(task, address)
    answers: dict[str, str] = {}

    def ask(name: str) -> None:
        answers[name] = _unreachable(others[name], deadline)

    # A question to a name server has no timeout of its own: it is left behind when time is up.
    asking = [threading.Thread(target=ask, args=(name,), daemon=True) for name in others]
    for thread in asking:
        thread.start()
    until = time.monotonic() + deadline + 0.5
    for thread in asking:
        thread.join(max(0.0, until - time.monotonic()))
    for name, where in others.items():
        why = answers.get(name, f"its name was not found within {seconds_text(deadline)}")
        if why:
            raise LabError(
                f"{name[0].upper()}{name[1:]} is said to be at {where}, and that machine cannot "
                f"be reached: {why}. Correct the address, or see that the machine is up."
            )


def _unreachable(address: str, deadline: float) -> str:
    """Why no packet reaches the host of this address; nothing when one does."""
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as fault:
        return f"its name {host!r} is not known here ({getattr(fault, 'strerror', '') or fault})"
    family, kind, protocol, _, where = found[0]
    with socket.socket(family, kind, protocol) as asker:
        asker.settimeout(deadline)
        try:
            code = asker.connect_ex(where)
        except TimeoutError:
            code = errno.ETIMEDOUT
    if code in _ANSWERS:
        return ""
    if code in (errno.ETIMEDOUT, errno.EAGAIN):
        return f"no answer within {seconds_text(deadline)}"
    return os.strerror(code)


def _own_port(task: str, address: str) -> None:
    """Whether this process could listen there. Nothing is made to listen."""
    host, port = split_address(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as fault:
        raise LabError(
            f"This process is {task} at {address}, and the name {host!r} is not known here "
            f"({getattr(fault, 'strerror', '') or fault}). Give this machine's own address."
        ) from fault
    for at, wrong in (
        ((where[0], 0, *where[2:]), "which is no address of this machine. Is the index right?"),
        (where, ""),
        # TensorFlow listens on every address of the machine, whatever TF_CONFIG says.
        (("::" if family == socket.AF_INET6 else "0.0.0.0", port), ""),  # noqa: S104
    ):
        with socket.socket(family, socket.SOCK_STREAM) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if os.environ.get("TF_GRPC_REUSE_PORT", "").lower() in ("1", "true"):
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                own.bind(at)
            except OSError as fault:
                why = wrong or (
                    f"and port {port} is taken ({os.strerror(fault.errno or 0).lower()}). "
                    "Choose another port for it in every TF_CONFIG, or end what listens there."
                )
                raise LabError(f"This process is {task} at {address}, {why}") from fault
