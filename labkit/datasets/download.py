"""Fetching one file of known size and checksum, with a deadline on everything."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from labkit.progress import unseen

__all__ = ["Deadlines", "NotFetchedError", "fetch"]

PIECE = 1 << 18


class NotFetchedError(Exception):
    """Why a download failed, as the end of a sentence."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds until a server must answer, between two pieces, and for everything."""

    answer_s: float = 8.0
    stall_s: float = 10.0
    total_s: float = 600.0


def fetch(
    url: str,
    sha256: str,
    size: int,
    sink: BinaryIO,
    deadlines: Deadlines,
    advance: Callable[[int], None] = unseen,
) -> None:
    """Write the file behind `url` into `sink`; raise NotFetchedError if it is any other file.

    What `sink.write` raises goes through. A thread reads the network, so that no name server,
    handshake or slow header can hold the caller longer than the deadlines say.
    """
    pieces: queue.Queue[bytes | NotFetchedError | None] = queue.Queue(maxsize=16)
    given_up = threading.Event()
    reader = threading.Thread(
        target=_read, args=(url, size, deadlines, pieces, given_up), daemon=True,
        name="labkit download",
    )  # fmt: skip
    began = time.monotonic()
    digest, received = hashlib.sha256(), 0
    reader.start()
    try:
        while received < size:
            patience = deadlines.stall_s if received else deadlines.answer_s
            left = began + deadlines.total_s - time.monotonic()
            try:
                piece = pieces.get(timeout=max(0.0, min(patience, left)))
            except queue.Empty:
                raise NotFetchedError(_late(received, left <= patience)) from None
            if piece is None:
                break
            if isinstance(piece, NotFetchedError):
                raise piece
            received += len(piece)
            if received > size:
                raise NotFetchedError(f"the server sent more than the {size:,} bytes of the file")
            digest.update(piece)
            sink.write(piece)
            advance(received)
    finally:
        given_up.set()
    if received < size:
        raise NotFetchedError(f"the connection ended after {received:,} of {size:,} bytes")
    if digest.hexdigest() != sha256:
        raise NotFetchedError(
            "what came has another checksum than the published file; it was discarded"
        )


def _late(received: int, in_all: bool) -> str:
    if in_all:
        return "it took too long"
    return "the connection stood still" if received else "the server did not answer"


def _read(
    url: str, size: int, deadlines: Deadlines, pieces: queue.Queue[Any], given_up: threading.Event
) -> None:
    import http.client
    import urllib.error
    import urllib.request

    def hand_over(item: bytes | NotFetchedError | None) -> bool:
        while not given_up.is_set():
            with suppress(queue.Full):
                pieces.put(item, timeout=0.2)
                return True
        return False

    try:
        # Only the pinned addresses of sources.py come here, and the checksum is the judge.
        request = urllib.request.Request(  # noqa: S310
            url, headers={"User-Agent": "labkit"}
        )
        timeout = max(deadlines.answer_s, deadlines.stall_s)
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            stated = answer.headers.get("Content-Length", "")
            if stated.isdigit() and int(stated) != size:
                hand_over(
                    NotFetchedError(
                        f"the server offers {int(stated):,} bytes where the file has {size:,}; "
                        "is there a login page in between?"
                    )
                )
                return
            while piece := answer.read1(PIECE):
                if not hand_over(piece):
                    return
        hand_over(None)
    except urllib.error.HTTPError as fault:
        hand_over(NotFetchedError(f"the server answered {fault.code}"))
        fault.close()
    except http.client.HTTPException:
        hand_over(NotFetchedError("the connection broke"))
    except (OSError, ValueError) as fault:
        hand_over(NotFetchedError(_refusal(fault)))


def _refusal(fault: Exception) -> str:
    import socket

    cause = getattr(fault, "reason", fault)
    if isinstance(cause, socket.gaierror):
        return "there is no internet here"
    if isinstance(cause, TimeoutError):
        return "the server did not answer"
    if isinstance(cause, ConnectionRefusedError):
        return "the connection was refused"
    return f"the connection broke ({type(cause).__name__})"
