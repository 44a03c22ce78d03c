"""Kernels of notebooks under test, and their fork servers: forks of one process with TensorFlow.

Starting IPython and importing TensorFlow, Keras and matplotlib takes four seconds of CPU for each
notebook, and again for the fork server of its ranks; here it takes them once for each process of
pytest. Linux; elsewhere, they start cold.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

IMPORTED = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib.pyplot", "keras", "tensorflow",
    "labkit.exercises", "labkit.training", "labkit.strategies", "labkit.cluster.fork_client",
)  # fmt: skip
INLINE = "module://matplotlib_inline.backend_inline"


def launch(command: list[str], *, cwd: str, env: dict[str, str], **options: Any) -> Any:
    """In the place of jupyter_client's own: a warm kernel, where the command starts IPython's."""
    from jupyter_client.launcher import launch_kernel

    if sys.platform != "linux" or command[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
        return launch_kernel(command, cwd=cwd, env=env, **options)
    return Forked(_server()[0], words=command[1:], cwd=str(cwd), env=env)


class Forked:
    """A forked process, with what its users need of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, server: socket.socket, files: Sequence[int] = (), **request: Any) -> None:
        self.returncode: int | None = None
        self._server = server
        self.pid = _ask(server, files, **request)
        self._ended = os.pidfd_open(self.pid)

    def poll(self, seconds: float | None = 0) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = _ask(self._server, reap=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class WarmSubprocess:
    """In the place of `subprocess` in `fork_client`: fork servers of this Python start warm."""

    def __init__(self, door: bytes) -> None:
        self._door = door

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:
        if command[:4] != [sys.executable, "-P", "-m", "labkit.cluster.fork_server"]:
            return subprocess.Popen(command, **options)
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._door)
        channel, _client, *words = command[4:]
        files = int(channel), options["stdout"].fileno()
        return Forked(server, files, words=words, env=options["env"])


@functools.cache
def _server() -> tuple[socket.socket, object]:
    """The process that forks kernels, and our end of its socket: it ends when this closes."""
    ours, its = socket.socketpair()
    with its:
        return ours, subprocess.Popen(
            [sys.executable, "-P", __file__, str(its.fileno())], pass_fds=[its.fileno()],
            start_new_session=True, env={**os.environ, "MPLBACKEND": INLINE},
        )  # fmt: skip


def _ask(server: socket.socket, files: Sequence[int] = (), **request: Any) -> int:
    socket.send_fds(server, [json.dumps(request).encode()], files)
    return int(server.recv(100))


def _main(number: int) -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends with it; read at import
    gc.disable()  # it would take a fifth of the seconds of the imports
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy every page of these objects
    with socket.socket(socket.AF_UNIX) as door:  # at which kernels ask for fork servers
        door.bind(f"\0labkit-warm-{os.getpid()}")
        door.listen()
        _serve(socket.socket(fileno=number), door)


def _serve(pytest: socket.socket, door: socket.socket) -> NoReturn:
    """Fork a process for each request, and reap it for another."""
    asking = [pytest, door]
    while True:
        for one in select.select(asking, [], [])[0]:
            if one is door:
                asking.append(door.accept()[0])
                continue
            asked, files, _, _ = socket.recv_fds(one, 2**20, 2)
            if asked:
                _obey(one, json.loads(asked), files, asking)
            elif one is pytest:
                os._exit(0)  # to free all that was imported would take a second
            else:
                asking.remove(one)
                one.close()


def _obey(
    its: socket.socket, request: dict[str, Any], files: list[int], asking: list[socket.socket]
) -> None:
    """Do what is asked. In the forked process this does not return."""
    if "reap" in request:
        code = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        its.send(str(code).encode())
    elif os.fork() == 0:
        server, door = os.getpid(), asking[1].getsockname()
        os.setsid()
        its.send(str(server).encode())  # not before: who asked takes it for a group
        for one in asking:
            one.close()
        if files:
            _be_fork_server(*files, **request)
        _be_kernel(door, **request)
    for file in files:
        os.close(file)


def _be_fork_server(channel: int, log: int, words: list[str], env: dict[str, str]) -> NoReturn:
    """Be the fork server of ranks: it ends with its client, or with the warm process."""
    from labkit.cluster import fork_server

    for number, file in enumerate((os.open(os.devnull, os.O_RDWR), log, log)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(env)
    gc.enable()
    fork_server.main([str(channel), str(os.getppid()), *words])
    sys.exit()


def _be_kernel(door: bytes, words: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """Be like a Python that has just started, with `-m` and these words on its command line."""
    import numpy as np

    from labkit.cluster import fork_client

    fork_client.subprocess = WarmSubprocess(door)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update({**env, "JPY_PARENT_PID": str(os.getppid())})
    time.tzset()
    np.random.seed()  # noqa: NPY002 (all are copies of one process)
    gc.enable()
    sys.argv[:] = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _main(int(sys.argv[1]))
