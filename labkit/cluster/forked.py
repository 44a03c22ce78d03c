"""What becomes of a process that the launcher has forked: a rank."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import io
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

from labkit.cluster import ports
from labkit.cluster.messages import frame, unnamed_file
from labkit.cluster.rank import prepare, run_prepared

__all__ = ["DONE", "GO", "READY", "alone_with_parent", "become_rank"]

READY, GO, DONE = b"ready", b"g", {"returned": b"v", "raised": b"x"}
LARGE = 1 << 18
DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG
_holding: list[socket.socket | None] = []


def become_rank(
    rank: int, environment: Mapping[str, str], held: str, files: list[int], parent: int
) -> NoReturn:
    """Be this rank until the end. `files`: stdout, stderr, messages, stacks, the program."""
    code = 70
    try:
        code = _live(rank, environment, held, files, parent)
    except BaseException:  # noqa: BLE001 (there is nobody above who could catch it)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _live(
    rank: int, environment: Mapping[str, str], held: str, files: list[int], parent: int
) -> int:
    out, err, messages, stacks, program = files
    alone_with_parent(parent)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for file, standard in ((out, 1), (err, 2)):
        os.dup2(file, standard)
        os.close(file)
    _new_streams()
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if hasattr(time, "tzset"):
        time.tzset()
    _be_a_fresh_python()
    _tell_where_it_ended(stacks)
    if held:
        _holding.append(ports.hold(held))
    post = socket.socket(fileno=messages)
    prepared = prepare(_read(program))
    post.sendall(frame(READY + b"%d" % os.getpid()))
    if post.recv(1) != GO:
        return 0  # the run is over before it has begun
    how, payload = run_prepared(prepared, rank)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _send(post, DONE[how], payload)
    if how == "raised":
        return 1
    # No rank goes before the run is over: a peer that vanishes is an error to TensorFlow.
    with suppress(OSError):
        post.recv(1)
    return 0


def _send(post: socket.socket, how: bytes, payload: bytes) -> None:
    if len(payload) < LARGE:
        post.sendall(frame(how + payload))
        return
    # A file is handed over as it is; through the socket, its bytes would be copied four times.
    with unnamed_file() as file:
        file.write(payload)
        file.flush()
        socket.send_fds(post, [frame(how)], [file.fileno()])


def _read(file: int) -> bytes:
    """The whole file; its place in it is shared with the other ranks, so it is left alone."""
    pieces: list[bytes] = []
    place = 0
    while piece := os.pread(file, 1 << 28, place):
        pieces.append(piece)
        place += len(piece)
    os.close(file)
    return b"".join(pieces)


def alone_with_parent(parent: int) -> None:
    """Be a group and a session of its own, which ends with its parent. Twice is as good as once."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_OF_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(0)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpid(), signal.SIGKILL)


def _new_streams() -> None:
    """stdout and stderr that hold nothing back: a rank may be killed at any moment."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw: Any = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _be_a_fresh_python() -> None:
    # Programs of a notebook live in __main__, and the launcher's is not theirs.
    sys.modules["__main__"] = ModuleType("__main__")
    sys.argv[:] = [""]
    random.seed()
    if "numpy.random" in sys.modules:
        # All ranks of all runs are copies of one process: each needs its own chance.
        sys.modules["numpy.random"].seed()
    gc.enable()


def _tell_where_it_ended(stacks: int) -> None:
    """A process that ends itself without an exception says where: nobody could ask it later."""
    mine = os.getpid()

    def telling(call: Callable[..., Any], ends_me: Callable[..., bool]) -> Callable[..., Any]:
        def told(*args: Any, **keywords: Any) -> Any:
            # Its own children, forks of this, end as they like.
            if os.getpid() == mine and ends_me(*args, **keywords):
                faulthandler.dump_traceback(stacks, all_threads=False)
            return call(*args, **keywords)

        return told

    os._exit = telling(os._exit, lambda *_, **__: True)
    os.kill = telling(os.kill, lambda pid, number: pid in (0, mine) and number != 0)
    os.killpg = telling(os.killpg, lambda group, number: group in (0, mine) and number != 0)
