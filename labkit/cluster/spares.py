"""Ranks before anybody asks for them: forked while nothing else is to be done, each waiting.

To copy a process that holds TensorFlow takes longer than anything else before a first line does.
So the launcher does it after a run, for the next one.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from labkit.cluster.forked import alone_with_parent, become_rank
from labkit.cluster.messages import Post

__all__ = ["Spares"]

MOST = 16


class Spares:
    """Processes that will be ranks."""

    def __init__(self) -> None:
        self._waiting: dict[int, Post] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, own_files: Collection[int]) -> None:
        """Fork one more. `own_files` are the launcher's, and of no concern to a rank."""
        ours, its = socket.socketpair()
        parent = os.getpid()
        gc.disable()
        pid = os.fork()
        if pid == 0:
            for file in (*own_files, ours.fileno(), *(p.fileno() for p in self._waiting.values())):
                os.close(file)
            _wait(Post(its), parent)
        gc.enable()
        its.close()
        self._waiting[pid] = Post(ours)

    def use(
        self, rank: int, environment: Mapping[str, str], held: str, files: Sequence[int]
    ) -> int | None:
        """Make one of them this rank, and give its pid. None: there is none."""
        while self._waiting:
            pid, post = self._waiting.popitem()
            try:
                # It may have been killed, and nobody has noticed yet.
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    post.send((rank, dict(environment), held), files)
                    return pid
            except OSError:
                continue
            finally:
                post.close()
        return None

    def forget(self, pid: int) -> None:
        """It has ended by itself."""
        self._waiting.pop(pid).close()

    def send_away(self) -> None:
        """End them all: they are copies of what the launcher was before."""
        for pid, post in self._waiting.items():
            post.close()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._waiting.clear()


def _wait(post: Post, parent: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        alone_with_parent(parent)
        asked: list[Any] = []
        while not asked and not post.closed:
            asked = post.receive()
        if not asked:
            os._exit(0)
        rank, environment, held = asked[0]
        files = post.files(5)
        post.close()
    except BaseException:  # noqa: BLE001 (there is nobody above who could catch it)
        sys.excepthook(*sys.exc_info())
        os._exit(70)
    become_rank(rank, environment, held, files, parent)
